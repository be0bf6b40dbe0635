import json
import sys

greetings = json.load(sys.stdin)
json.dump({"count": len(greetings), "greetings": greetings}, sys.stdout)
