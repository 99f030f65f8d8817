"""What llama.cpp's server tests take for granted of their models, put aside (pytest -p; see bench/llama_server_tests).

Their models are a few hundred kilobytes that tell stories. With another model, what an answer says and how many tokens a
prompt has are others: where a test compares with such, it is enough here that there is a text, or a prompt. What a test
looks at beside that is looked at. Nothing of the tests' own files is changed.

LLAMA_SERVER_REPORT is a file to which a line of JSON is written for each test.
"""

import json
import os
import re

import pytest

# Texts of the stories' models, inside of tests; as parameters, of these tests.
STORIES = {"(going|bed)+", "(Suddenly)+", "(little|girl)+", "(Ann|small|shiny|Daddy|Jimmy)+",
           "(Dad|excited|park|Jimmy)+"}
STORY_TESTS = {"test_completion", "test_completion_stream", "test_chat_completion", "test_chat_completion_stream"}
# In which answers must be as long as they may be. The stories' models hardly end theirs.
LONG_TESTS = STORY_TESTS | {"test_completion_unified", "test_completion_parallel_slots", "test_n_probs",
                            "test_n_probs_stream", "test_ctx_shift_disabled_short_prompt",
                            "test_completion_with_openai_library", "test_different_result_different_seed",
                            "test_chat_completion_with_openai_library", "test_chat_completions_multiple_choices",
                            "test_metrics_generation_rate_excludes_first_token", "test_metrics_timings_are_finite",
                            "test_metrics_predicted_total_matches_requests", "test_infill_without_input_extra",
                            "test_infill_with_input_extra", "test_anthropic_tool_result"}


class AnyCount:
    """Equal to each count of tokens."""

    def __eq__(self, other):
        return isinstance(other, int) and other > 0

    __hash__ = None


def pytest_configure(config):
    import utils

    utils.ServerPreset.load_all = staticmethod(lambda: None)  # it would download them
    match = utils.match_regex
    utils.match_regex = lambda regex, text: match(r"\S" if regex in STORIES else regex, text)


def name_of(item):
    return getattr(item, "originalname", item.name)


def pytest_collection_modifyitems(items):
    for item in items:
        if name_of(item) not in STORY_TESTS:
            continue
        for name, other in (("re_content", r"\S"), ("n_prompt", AnyCount())):
            if name in item.callspec.params:
                item.callspec.params[name] = other


@pytest.fixture(autouse=True)
def answers_as_long_as_they_may_be(request, monkeypatch):
    if name_of(request.node) in LONG_TESTS:
        monkeypatch.setenv("SLUICE_IGNORE_EOS", "1")


def reason_of(report):
    """Why it did not pass, in a line: what the wrapper said, or the assertion."""
    if report.skipped:
        return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
    said = re.findall(r"llama_server_wrapper: not here: (.*)", report.capstdout + report.capstderr)
    if said:
        return "not here: " + said[-1]
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash else str(report.longrepr)).split("\n")[0]


def pytest_runtest_logreport(report):
    if report.when != "call" and report.passed:
        return
    line = {"file": report.nodeid.split("::")[0], "test": report.nodeid.split("::", 1)[1], "outcome": report.outcome,
            "reason": "" if report.passed else reason_of(report)}
    with open(os.environ["LLAMA_SERVER_REPORT"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
