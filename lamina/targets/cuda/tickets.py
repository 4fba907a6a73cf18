"""CUDA C++ of a loop over tiles that blocks take by tickets, as `tile_of_ticket`
(lamina/tiles/orders.py) numbers them.

The first ticket of a block is its number. Later ones are counted by `tickets`, which begins at 0;
the block that draws the last one sets it to 0 for the next launch. Of 64 tiles, 32 an array, and
64 blocks:

    u32 ticket = BLOCK;
    if (taken > 0) {
        ticket = 64 + atomicAdd(&tickets, 1);
        if (ticket == 127) tickets = 0;
    }
    drawn_tickets[taken % 4] = ticket;
"""

from lamina.tiles.program import TileLoop


def draw_lines(loop: TileLoop, slot: str) -> list[str]:
    """Lines that draw a ticket, and write it to a slot for others."""
    return [
        "u32 ticket = BLOCK;",
        "if (taken > 0) {",
        f"    ticket = {loop.blocks} + atomicAdd(&tickets, 1);",
        f"    if (ticket == {loop.tiles + loop.blocks - 1}) tickets = 0;",
        "}",
        f"drawn_tickets[{slot}] = ticket;",
    ]


def tile_lines(loop: TileLoop) -> list[str]:
    """Lines from the ticket to the tile, which end the loop behind the last one."""
    tickets = loop.tickets
    assert tickets is not None
    row_tiles, together = tickets.row_tiles, tickets.together
    tickets_together, arrays = together * row_tiles, loop.tiles // row_tiles
    row = f"{row_tiles - 1} - row" if tickets.is_last_first else "row"
    return [
        f"if (ticket >= {loop.tiles}) break;",
        f"const u32 start = ticket / {tickets_together} * {together};",
        f"const u32 rest = ticket % {tickets_together};",
        f"const u32 arrays = min({together}u, {arrays} - start), row = rest / arrays;",
        f"const u32 tile = (start + rest % arrays) * {row_tiles} + {row};",
    ]
