#!/bin/sh
# [..] -> {"greetings": [..]}
sed 's/.*/{"greetings": &}/'
