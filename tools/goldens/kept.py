"""Which rows of a run a golden keeps: see README.md."""

# Positions at which a long text keeps what the final norm gives.
LAST = 32


def spread(length, rows):
    """`rows` positions of a text, the last one included."""
    return sorted({round((i + 1) * length / min(rows, length)) - 1 for i in range(min(rows, length))})
