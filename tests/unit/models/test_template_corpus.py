"""Templates in the style of the popular families, rendered as transformers renders them."""

import json
from pathlib import Path

import pytest
from template_conversations import BOS, CONVERSATIONS, EOS, TEMPLATES, VARIABLES

from octavo.errors import InvalidRequestError
from octavo.models.chat_template import ChatTemplate

GOLDENS = json.loads((Path(__file__).parents[2] / "goldens" / "chat_templates.json").read_text())


def rendered(template: ChatTemplate, conversation: dict) -> str:
    options = {**conversation}
    messages, add = options.pop("messages"), options.pop("add_generation_prompt", True)
    return template.render(messages, add_generation_prompt=add, variables={**VARIABLES, **options})


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_texts_and_errors_are_those_of_transformers(path):
    template = ChatTemplate(path.read_text(), bos_token=BOS, eos_token=EOS, origin=path.name)
    assert GOLDENS[path.stem].keys() == CONVERSATIONS.keys()
    for name, golden in GOLDENS[path.stem].items():
        if "text" in golden:
            assert rendered(template, CONVERSATIONS[name]) == golden["text"], name
        else:
            with pytest.raises(InvalidRequestError) as caught:
                rendered(template, CONVERSATIONS[name])
            said = " ".join(golden["error"].split())
            assert str(caught.value).endswith(said), name


def test_the_corpus_has_enough_of_both():
    outcomes = [golden for cases in GOLDENS.values() for golden in cases.values()]
    assert sum("text" in golden for golden in outcomes) > 100
    assert sum("error" in golden for golden in outcomes) > 20
