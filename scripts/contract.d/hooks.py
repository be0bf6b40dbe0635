"""What schemathesis is told of the API beside its description. It loads this file itself."""

import itertools
import os

import schemathesis

# Refusals of requests that match the description, for reasons that it cannot express: they depend on two parts of a
# request, or on a request and the contents of the database. Operation, status, words of the detail.
BEYOND_THE_DESCRIPTION = [
    ("GET /api/v1/runs", 400, "a key belongs to a run of its pipeline"),
    ("GET /api/v1/runs/{id}/steps", 400, "it is of another run's list"),
    ("GET /api/v1/actions", 400, "it does not go together with `run`"),
    ("POST /api/v1/pipelines/{name}/runs", 422, "the input is not as the pipeline"),
    ("POST /api/v1/pipelines/{name}/runs", 422, "this key already belongs to the run"),
    ("POST /api/v1/bulk", 422, "`latest` is for the revival of runs that a filter finds"),
    ("POST /api/v1/bulk", 422, "changes nothing in runs that are"),
    ("POST /api/v1/bulk", 422, "a kind of failure is only revived"),
    ("POST /api/v1/bulk", 422, "the filter names"),
    ("POST /api/v1/bulk", 422, "the filter is empty"),
    ("POST /api/v1/bulk", 422, "there are no such runs"),
]

# The number of late answers that are allowed in a run: the machine may be busy.
LATE_MAX = 10

late = itertools.count(1)


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Takes `default` away, which stands for what may befall any request: all that is met here is to be named."""
    for methods in raw_schema["paths"].values():
        for operation in methods.values():
            operation["responses"].pop("default", None)


@schemathesis.hook
def filter_failure(context, failure, case, response):
    return type(failure).__name__ != "RejectedPositiveData" or not any(
        case.operation.label == label and response.status_code == status and words in response.text
        for label, status, words in BEYOND_THE_DESCRIPTION
    )


@schemathesis.auth(refresh_interval=None)
class Tokens:
    """Takes turns with tokens: one is good for 50 requests a second, which tests/console/tokens.rs looks at."""

    turns = itertools.cycle(os.environ["CONTRACT_TOKENS"].split())

    def get(self, case, context):
        return next(self.turns)

    def set(self, case, data, context):
        case.headers["Authorization"] = f"Bearer {data}"


@schemathesis.check
def answered(ctx, response, case):
    """A request that is put off is looked at by no other check, and all of them would be so without a sound."""
    assert response.status_code != 429, "too many requests a second"
    assert response.status_code != 503 or next(late) <= LATE_MAX, f"late for more than {LATE_MAX} times"
