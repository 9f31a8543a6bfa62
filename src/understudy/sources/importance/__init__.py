"""How much each row of a fixed dataset counts: settings, providers, and batches with their rows' weights."""

from understudy.sources.importance.settings import ImportanceSettings
from understudy.sources.importance.weighed import WeighedSource

__all__ = ["ImportanceSettings", "WeighedSource"]
