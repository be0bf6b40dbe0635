#!/bin/sh
# "Ada" -> "Hello, Ada!". What goes to standard error is logged.
echo "greeting, attempt $DUCTWORK_ATTEMPT" >&2
sed 's/^"\(.*\)"$/"Hello, \1!"/'
