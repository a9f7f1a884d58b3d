"""`TemplateBudget`: how much a chat template may do while it renders one conversation.

A template comes out of a file that somebody else made, and it is a program. Two limits hold it: the
size of any one value, checked before the value is made where an operation can blow it up, and steps. A
step is a node of the template that is executed, half an item that is looked at, an eighth of looking at
values at all, or 16 characters that are handled; so steps bound time, and all the memory that values can
take up together.
"""

from collections.abc import Sequence

from octavo.models.template_growth import TemplateLimitError, check_size, growth_of, size_of

MAX_STEPS = 2_000_000
"""About a second. A conversation of a thousand long messages takes up to 850,000."""

_CHARACTERS_PER_STEP = 16
_STEPS_PER_ITEM = 2
_STEPS_PER_LOOK = 8


class TemplateBudget:
    """What is left of the steps of one rendering."""

    def __init__(self) -> None:
        self._steps_left = MAX_STEPS

    def spend(self, steps: int) -> None:
        """Count steps.

        Raises:
            TemplateLimitError: there are none left.
        """
        self._steps_left -= steps
        if self._steps_left < 0:
            raise TemplateLimitError(f"it takes more than {MAX_STEPS:,} steps")

    def spend_on(self, *values: object) -> int:
        """Count the steps that handling these values takes. Returns their size [characters].

        Raises:
            TemplateLimitError: they are too large, or no steps are left.
        """
        size, num_items = size_of(*values)
        self.spend(_STEPS_PER_LOOK + _STEPS_PER_ITEM * num_items + size // _CHARACTERS_PER_STEP)
        return size

    def admit(self, operation: str, subject: object, arguments: Sequence[object]) -> None:
        """Count an operator, filter or method before it runs.

        Raises:
            TemplateLimitError: what it makes would be too large, or no steps are left.
        """
        size = self.spend_on(subject, *arguments)
        growth = growth_of(operation, subject, arguments)
        if growth:
            check_size(size + growth)
            self.spend(growth // _CHARACTERS_PER_STEP)
