"""A table that fits the screen: a narrow one shows fewer columns, none of them cut."""

from collections.abc import Iterator, Sequence
from typing import Literal, final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table


@final
class FittingTable:
    """Rows under heads, as many of its columns as the screen is wide enough for."""

    def __init__(
        self, heads: Sequence[str], left: Sequence[str], left_out_first: Sequence[str], wrapped: Sequence[str] = ()
    ) -> None:
        """`left`: heads of columns that are words; `left_out_first`: those that go, the first one first."""
        self.heads = heads
        self.left = left
        self.left_out_first = left_out_first
        self.wrapped = wrapped
        self.rows: list[tuple[str, ...]] = []

    def add_row(self, *cells: str) -> None:
        self.rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        left_out: set[str] = set()
        for further in ("nothing", *self.left_out_first):
            left_out.add(further)
            table = self._drawn([number for number, head in enumerate(self.heads) if head not in left_out])
            if Measurement.get(console, options.update(max_width=10_000), table).maximum <= options.max_width:
                break
        yield table

    def _drawn(self, kept: Sequence[int]) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
        for number in kept:
            head = self.heads[number]
            justify: Literal["left", "right"] = "left" if head in self.left else "right"
            table.add_column(head, justify=justify, no_wrap=head not in self.wrapped)
        for row in self.rows:
            table.add_row(*(row[number] for number in kept if number < len(row)))
        return table
