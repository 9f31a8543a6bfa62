"""Reference motions: clips of others as frames at the control step."""

from understudy.data.motions.loading import load_motions as load_motions
from understudy.data.motions.motion_set import MotionSet as MotionSet
from understudy.data.motions.settings import MotionSettings as MotionSettings
