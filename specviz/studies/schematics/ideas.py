"""One drawing for each idea of the course, of at most eight elements."""

from specviz.studies.schematics.drawing import CELL, Cell, Drawing

MOST_ELEMENTS = 8


def cells(text: str, kind: str) -> list[Cell]:
    """Return a cell for each word."""
    return [(word, kind) for word in text.split()]


def blank(count: int, kind: str = "empty") -> list[Cell]:
    return [("", kind)] * count


def a_round() -> Drawing:
    drawing = Drawing(
        "round",
        "A round",
        "Four boxes in a row: draft, verify, accept, synchronise. Below them: four drafts A B C D, "
        "the target's choices A B X, and the three tokens A B X that the row gains.",
        720,
        250,
    )
    phases = [
        ["draft", "K small forwards"],
        ["verify", "one target forward"],
        ["accept", "a drafts and the bonus"],
        ["synchronise", "rows are ragged now"],
    ]
    drawing.flow(20, 50, 145, phases)
    x = 220
    drawing.cells(x, 122, cells("A B C D", "draft"), "drafts, K = 4")
    drawing.cells(x, 162, [*cells("A B", "text"), ("X", "bonus")], "target's choices")
    kept = [*cells("A B", "accepted"), ("X", "bonus")]
    drawing.cells(x, 202, kept, "the row gains a + 1 = 3")
    return drawing


def stale() -> Drawing:
    drawing = Drawing(
        "stale",
        "Stale K/V",
        "The text of a row: four tokens, the accepted drafts A and B, the bonus X. Its cache: K/V "
        "of the four tokens and of the drafts A, B, C and D. That of C and D is stale.",
        560,
        174,
    )
    x = 190
    tokens = [*cells("t t t t", "text"), *cells("A B", "accepted")]
    drawing.cells(x, 46, [*tokens, ("X", "bonus"), *blank(1)], "text of the row")
    drawing.cells(x, 92, [*tokens, *cells("C D", "rejected")], "K/V in the cache")
    drawing.span(x + 6 * CELL, x + 8 * CELL, 142, "stale: K/V of no token of the text", below=True)
    return drawing


def holes() -> Drawing:
    drawing = Drawing(
        "holes",
        "Holes and drift",
        "A row of nine slots: tokens 0 to 3, two rejected drafts that were left there, tokens 4 to "
        "6. Positions that count the row's own tokens go on with 4 behind the hole. Positions that "
        "count slots go on with 6, which is 2 too many.",
        560,
        236,
    )
    x = 190
    tokens = cells("0 1 2 3", "text") + cells("x x", "rejected") + cells("4 5", "text")
    drawing.cells(x, 46, [(str(slot), "none") for slot in range(9)], "slot")
    drawing.cells(x, 80, [*tokens, ("6", "pending")], "token, by its index")
    right = cells("0 1 2 3", "none") + cells("- -", "none") + cells("4 5 6", "none")
    drawing.cells(x, 118, right, "right positions")
    wrong = cells("0 1 2 3", "none") + cells("- -", "none") + cells("6! 7! 8!", "none")
    drawing.cells(x, 150, wrong, "counted in slots")
    drawing.span(x + 4 * CELL, x + 6 * CELL, 194, "hole: masked, and never a position", below=True)
    return drawing


def realignment() -> Drawing:
    drawing = Drawing(
        "realignment",
        "Realignment",
        "Left: three left-padded rows that ended in column 3 gained 1, 3 and 2 tokens, and end "
        "in columns 4, 6 and 5. Right: the rows have moved by d = 1, -1 and 0 slots and end in "
        "column 5 together.",
        720,
        226,
    )
    left, right = 70, 480
    old_length = 4
    rows = ((4, 1), (3, 3), (3, 2))  # tokens before the round, gain
    new_length = max(old + gain for old, gain in rows)
    for number, (old, gain) in enumerate(rows):
        y = 60 + 44 * number
        tokens = [*cells("t " * old, "text"), *cells("+ " * gain, "accepted")]
        row = [*blank(old_length - old), *tokens]
        drawing.cells(left, y, [*row, *blank(7 - len(row))], f"row {number}")
        d = new_length - old_length - gain
        drawing.cells(right, y, [*blank(new_length - len(tokens)), *tokens], f"d = {d}")
    drawing.arrow((318, 121), (415, 121), text="move K/V by d")
    drawing.note(70, 212, "t: before the round. +: gained. Dotted: padding, masked.", "small")
    return drawing


def pool() -> Drawing:
    drawing = Drawing(
        "pool",
        "A pool",
        "A pool of five sequences with n of 7, 9, 7, 8 and 7. The three of equal length form a "
        "batch, which goes through a round and comes back to the pool. If no group is full, rows "
        "of different length are realigned.",
        720,
        270,
    )
    lengths = (7, 9, 7, 8, 7)
    for number, n in enumerate(lengths[:3]):
        kind = "accepted" if n == 7 else "text"
        drawing.cells(150, 52 + 40 * number, [(str(n), kind)], f"sequence {number}: n =")
    drawing.cells(150, 172, [("8", "text")], "sequence 3: n =")
    drawing.cells(150, 212, [("7", "accepted")], "sequence 4: n =")
    drawing.arrow((205, 130), (375, 130), text="schedule: a group of equal n")
    drawing.cells(390, 113, cells("7 7 7", "accepted"))
    drawing.box(520, 88, 180, ["round", "no row has to move", "no group? realign"], 84)
    return drawing


def in_place() -> Drawing:
    drawing = Drawing(
        "slot-position",
        "Slot = position",
        "Two rows in the same slots, each written at its own positions. Row 0 has five tokens and "
        "one rejected draft, row 1 three tokens and two rejected drafts. In the next round each "
        "row writes over its rejected drafts. Nothing is moved.",
        640,
        292,
    )
    x = 150
    drawing.cells(x, 44, [(str(slot), "none") for slot in range(9)], "slot")
    first = [*cells("0 1 2 3", "text"), ("4", "accepted"), *cells("x", "rejected")]
    drawing.cells(x, 78, [*first, *blank(3)], "row 0")
    second = [*cells("0 1 2", "text"), *cells("x x", "rejected")]
    drawing.cells(x, 118, [*second, *blank(4)], "row 1")
    middle = x + 4.5 * CELL
    drawing.arrow((middle, 158), (middle, 194), text="next round", at=(middle + 46, 181))
    third = [*cells("0 1 2 3 4", "text"), ("5", "pending"), *cells("6 7", "draft")]
    drawing.cells(x, 202, [*third, *blank(1)], "row 0")
    fourth = [*cells("0 1 2", "text"), ("3", "pending"), *cells("4 5", "draft")]
    drawing.cells(x, 242, [*fourth, *blank(3)], "row 1")
    drawing.note(x + 9 * CELL + 14, 224, "written over", "small")
    return drawing


def roofline() -> Drawing:
    drawing = Drawing(
        "roofline",
        "The roofline of a round",
        "A line that rises and then is flat: the most operations a second at each intensity. One "
        "token a row lies on its rising part. Verifying K + 1 tokens lies further right: on the "
        "rising part for few rows, where it costs little more, and on the flat part for many rows.",
        620,
        320,
    )
    drawing.path([(80, 50), (80, 270), (590, 270)], "operations a second", (88, 60))
    drawing.path(
        [(80, 270), (330, 90), (585, 90)], "memory is the limit | arithmetic is", (262, 80)
    )
    drawing.dot(150, 220, "a step, B = 1")
    drawing.dot(205, 180, "verification, B = 1", "accepted")
    drawing.dot(280, 126, "a step, B = 64", dx=-12)
    drawing.dot(430, 90, "", "rejected")
    drawing.note(430, 120, "verification, B = 64", anchor="middle")
    drawing.note(585, 292, "intensity: operations a byte (both axes logarithmic)", "small", "end")
    return drawing


def tree() -> Drawing:
    drawing = Drawing(
        "tree",
        "A tree of drafts",
        "A tree: the pending token, two drafts A and B behind it, C and D behind A, E behind B. "
        "The branch A D is accepted. Below: the slots of all nodes, and the slots after the "
        "accepted branch has been moved together.",
        640,
        300,
    )
    x = 170
    nodes = [
        (170.0, 96.0, "n-1", "pending"),
        (250.0, 66.0, "A", "accepted"),
        (250.0, 126.0, "B", "rejected"),
        (330.0, 48.0, "C", "rejected"),
        (330.0, 88.0, "D", "accepted"),
        (330.0, 128.0, "E", "rejected"),
    ]
    drawing.nodes(nodes, [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5)])
    drawing.note(400, 84, "a token attends to its ancestors,", "small")
    drawing.note(400, 102, "one forward verifies all branches", "small")
    row = [("n-1", "pending"), ("A", "accepted"), ("B", "rejected"), ("C", "rejected")]
    drawing.cells(x, 180, [*row, ("D", "accepted"), ("E", "rejected")], "slots, verified")
    drawing.arrow(
        (x + 4.5 * CELL, 216), (x + 2.6 * CELL, 240), text="compaction", at=(x + 5 * CELL, 236)
    )
    after = [("n-1", "text"), *cells("A D", "accepted"), ("X", "bonus")]
    drawing.cells(x, 244, after, "after, with the bonus")
    return drawing


def heads() -> Drawing:
    drawing = Drawing(
        "heads",
        "Draft heads",
        "The target's last hidden state, called a feature, goes with the last token into a small "
        "head. The head writes drafts, which the target verifies in one forward. There is no draft "
        "model.",
        640,
        230,
    )
    drawing.box(30, 70, 150, ["target", "one forward a round"], 70)
    drawing.arrow((180, 105), (268, 105), text="feature")
    drawing.box(270, 70, 130, ["head", "a few small layers"], 70)
    drawing.arrow((400, 105), (458, 105))
    drawing.cells(462, 88, cells("A B C", "draft"))
    drawing.arrow((513, 126), (513, 190), (105, 190), (105, 142), text="verify", at=(310, 183))
    drawing.note(462, 76, "drafts", "small")
    return drawing


IDEAS = (a_round, stale, holes, realignment, pool, in_place, roofline, tree, heads)
