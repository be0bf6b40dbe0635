#!/bin/sh
# "Ada" -> "Hello, Ada!". Standard error is logged.
echo "greeting, attempt $DUCTWORK_ATTEMPT" >&2
sed 's/^"\(.*\)"$/"Hello, \1!"/'
