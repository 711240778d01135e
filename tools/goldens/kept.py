"""Which rows of a run a golden keeps: see README.md."""

# Positions at the end of a text at which the golden keeps what the final norm gives.
LAST = 2
# Positions of each prompt of a small random checkpoint.
ROWS = 2
# Prompts that keep logits; those of the others follow from what the final norm gives.
WITH_LOGITS = 1


def states(index, prompts):
    """Whether a decoder's golden keeps the hidden states of a prompt: those of the first and of the last."""
    return index in (0, prompts - 1)


def spread(length, rows):
    """`rows` positions of a text, the last one included."""
    return sorted({round((i + 1) * length / min(rows, length)) - 1 for i in range(min(rows, length))})
