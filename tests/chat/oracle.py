"""Renders templates with Jinja itself, set up as transformers sets it up.

Reads a JSON array of {"template", "variables", "now"} from the first file, writes an array of {"text"} or {"error"} to the
second.
"""
import datetime
import functools
import json
import sys

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def make_environment():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    return environment


ENVIRONMENT = make_environment()
compiled = functools.lru_cache(maxsize=None)(ENVIRONMENT.from_string)


def render(case):
    ENVIRONMENT.globals["strftime_now"] = datetime.datetime.fromtimestamp(case["now"]).strftime
    try:
        return {"text": compiled(case["template"]).render(**case["variables"])}
    except Exception as error:  # whatever Python throws is an error of the template
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as cases:
        results = [render(case) for case in json.load(cases)]
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        json.dump(results, out)
