"""The checks of scripts/kubernetes: renders, validates, and looks at what comes of it."""

import copy
import json
import os
import re
import subprocess
import sys
import tempfile

import yaml

BIN = sys.argv[1]
ROOT = "deploy/kubernetes"
ALERTS = "deploy/prometheus/alerts.yml"
RULES = f"{ROOT}/components/monitoring/rules.yml"
IMAGE = "registry.example/ductworkd:1.2.3"

# The combinations of components that the README names.
OVERLAYS = [
    [],
    ["keda"],
    ["monitoring"],
    ["network-policy"],
    ["keda", "monitoring", "network-policy"],
    ["sqlite"],
    ["sqlite", "monitoring", "network-policy"],
]

# The secrets that the README tells people to create, with their keys.
SECRETS = {"ductwork-database": {"url"}, "ductwork-console": {"token"}}

# The kinds that no schema of Kubernetes contains, with the keys that the manifests use; None allows anything.
FOREIGN = {
    "ScaledObject": {
        "scaleTargetRef": {"name": None},
        "minReplicaCount": None,
        "maxReplicaCount": None,
        "pollingInterval": None,
        "cooldownPeriod": None,
        "triggers": {
            "type": None,
            "metadata": {"url": None, "valueLocation": None, "targetValue": None, "authMode": None},
            "authenticationRef": {"name": None},
        },
        "advanced": {
            "horizontalPodAutoscalerConfig": {
                "behavior": {
                    "scaleDown": {
                        "stabilizationWindowSeconds": None,
                        "policies": {"type": None, "value": None, "periodSeconds": None},
                    }
                }
            }
        },
    },
    "TriggerAuthentication": {"secretTargetRef": {"parameter": None, "name": None, "key": None}},
    "ServiceMonitor": {
        "selector": {"matchLabels": None},
        "jobLabel": None,
        "endpoints": {
            "port": None,
            "path": None,
            "interval": None,
            "relabelings": {"action": None, "regex": None},
            "authorization": {"credentials": {"name": None, "key": None}},
        },
    },
    "PrometheusRule": {
        "groups": {
            "name": None,
            "rules": {
                "alert": None,
                "expr": None,
                "for": None,
                "labels": {"severity": None},
                "annotations": {"summary": None, "description": None},
            },
        }
    },
}


def rules():
    """The alerts as the operator of Prometheus takes them."""
    with open(ALERTS) as file:
        groups = file.read().split("\ngroups:\n", 1)[1]
    body = "".join(f"  {line}" if line.strip() else line for line in groups.splitlines(keepends=True))
    return (
        "# Written by `scripts/kubernetes --write`, from deploy/prometheus/alerts.yml.\n"
        "apiVersion: monitoring.coreos.com/v1\n"
        "kind: PrometheusRule\n"
        "metadata:\n"
        "  name: ductwork\n"
        "  labels:\n"
        "    app.kubernetes.io/name: ductwork\n"
        f"spec:\n  groups:\n{body}"
    )


def render(components):
    """The manifests of an overlay with these components, as text."""
    with tempfile.TemporaryDirectory(dir=ROOT, prefix=".check-") as directory:
        overlay = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": "work",
            "resources": ["../base"],
            "components": [f"../components/{name}" for name in components],
            "images": [{"name": "ductworkd", "newName": "registry.example/ductworkd", "newTag": "1.2.3"}],
        }
        with open(f"{directory}/kustomization.yml", "w") as file:
            yaml.safe_dump(overlay, file)
        # Its warnings are about deprecated keys.
        done = subprocess.run([f"{BIN}/kubectl", "kustomize", directory], capture_output=True, text=True)
    if done.returncode or done.stderr:
        raise SystemExit(f"{components}: {done.stderr}")
    return done.stdout


def invalid(documents):
    """The objections of Kubernetes's schemas."""
    known = [it for it in documents if it["kind"] not in FOREIGN]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        yaml.safe_dump_all(known, file)
        file.flush()
        command = [f"{BIN}/kubernetes-validate", "--strict", "--quiet", file.name]
        done = subprocess.run(command, capture_output=True, text=True)
    said = done.stdout + done.stderr
    return [said] if done.returncode or "find schema" in said else []


def unknown(value, shape, path):
    """The keys of a foreign kind that we do not know of."""
    if isinstance(value, list):
        return [it for item in value for it in unknown(item, shape, path)]
    if shape is None or not isinstance(value, dict):
        return []
    found = [f"{path}.{key} is unknown" for key in value if key not in shape]
    for key in value.keys() & shape.keys():
        found += unknown(value[key], shape[key], f"{path}.{key}")
    return found


def pods(documents):
    """The pods that these make: their labels and what is specified."""
    for document in documents:
        template = document["spec"].get("template") if "spec" in document else None
        if template:
            yield f"{document['kind']} {document['metadata']['name']}", template["metadata"]["labels"], template["spec"]


def unconfined(name, pod):
    """How a pod is not confined as it should be."""
    wanted = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 45,
    }
    found = [f"{name}: {key} is {pod.get(key)}" for key, value in wanted.items() if pod.get(key) != value]
    context = {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if pod.get("securityContext") != context:
        found.append(f"{name}: the pod's security context is {pod.get('securityContext')}")
    context = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    for container in pod["containers"] + pod.get("initContainers", []):
        if container.get("securityContext") != context:
            found.append(f"{name}: the container's security context is {container.get('securityContext')}")
        if container["image"] != IMAGE:
            found.append(f"{name}: its image is {container['image']}")
    for key in ["hostNetwork", "hostPID", "hostIPC"]:
        if pod.get(key):
            found.append(f"{name}: it has {key}")
    return found


def unprobed(name, labels, pod):
    """How a pod's probes are not those of its part."""
    part, container = labels["app.kubernetes.io/component"], pod["containers"][0]
    live = {"exec": {"command": ["/usr/local/bin/ductworkd", "health", "--live"]}}
    ask = lambda path: {"httpGet": {"path": path, "port": "http"}}
    wanted = {
        "migrate": {},
        "advancer": {"startupProbe": live, "livenessProbe": live},
        "worker": {"startupProbe": live, "livenessProbe": live},
        "all": {"startupProbe": live, "livenessProbe": live, "readinessProbe": ask("/readyz")},
        "console": {
            "startupProbe": ask("/startupz"),
            "livenessProbe": ask("/livez"),
            "readinessProbe": ask("/readyz"),
        },
    }[part]
    found = []
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"]:
        how = container.get(probe, {})
        how = {key: value for key, value in how.items() if key in ("exec", "httpGet")}
        if how != wanted.get(probe, {}):
            found.append(f"{name}: its {probe} is {how}")
    stop = {"preStop": {"sleep": {"seconds": 5}}} if part == "console" else None
    if container.get("lifecycle") != stop:
        found.append(f"{name}: its lifecycle is {container.get('lifecycle')}")
    return found


def matches(selector, labels):
    """Whether a selector selects these labels."""
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        selector = {"matchLabels": selector}
    wanted = selector.get("matchLabels", {})
    expressions = selector.get("matchExpressions", [])
    assert all(it["operator"] == "In" for it in expressions)
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        labels.get(it["key"]) in it["values"] for it in expressions
    )


def dangling(documents):
    """References to what is not there."""
    named = {(it["kind"], it["metadata"]["name"]) for it in documents}
    secrets = {(name, key) for name, keys in SECRETS.items() for key in keys}
    found = []

    def refer(whence, kind, name):
        if (kind, name) not in named:
            found.append(f"{whence}: there is no {kind} {name}")

    def secret(whence, reference):
        if (reference["name"], reference["key"]) not in secrets:
            found.append(f"{whence}: the README makes no such secret: {reference}")

    for name, _, pod in pods(documents):
        for volume in pod["volumes"]:
            if "configMap" in volume:
                refer(name, "ConfigMap", volume["configMap"]["name"])
        for variable in pod["containers"][0]["env"]:
            if "secretKeyRef" in variable.get("valueFrom", {}):
                secret(name, variable["valueFrom"]["secretKeyRef"])
    labels = [labels for _, labels, _ in pods(documents)]
    parts = {them["app.kubernetes.io/component"] for them in labels}
    services = [it["metadata"]["labels"] for it in documents if it["kind"] == "Service"]
    for document in documents:
        kind, spec = document["kind"], document.get("spec", {})
        name = f"{kind} {document['metadata']['name']}"
        selector = spec.get("podSelector") if kind == "NetworkPolicy" else spec.get("selector")
        among = services if kind == "ServiceMonitor" else labels
        if "all" in parts and name == "NetworkPolicy ductwork-egress":
            # It is for pods that run no steps.
            continue
        if selector is not None and not any(matches(selector, them) for them in among):
            found.append(f"{name} selects nothing: {selector}")
        if kind == "StatefulSet":
            refer(name, "Service", spec["serviceName"])
        if kind == "PodDisruptionBudget" and spec.get("maxUnavailable") != 1:
            found.append(f"{name}: maxUnavailable is {spec.get('maxUnavailable')}")
        if kind == "ScaledObject":
            refer(name, "Deployment", spec["scaleTargetRef"]["name"])
            for trigger in spec["triggers"]:
                refer(name, "TriggerAuthentication", trigger["authenticationRef"]["name"])
                found += unanswered(name, trigger["metadata"])
        if kind == "TriggerAuthentication":
            for reference in spec["secretTargetRef"]:
                secret(name, reference)
        if kind == "ServiceMonitor":
            secret(name, spec["endpoints"][0]["authorization"]["credentials"])
    return found


def unanswered(name, metadata):
    """A question of a scaler's that the API does not answer, by tests/openapi.json."""
    with open("tests/openapi.json") as file:
        api = json.load(file)
    asked = re.fullmatch(r"http://ductwork-console:9410(/api/v1/stats)\?pipeline=\w+", metadata["url"])
    if not asked:
        return [f"{name} asks {metadata['url']}"]
    get = api["paths"][asked[1]]["get"]
    schema = get["responses"]["200"]["content"]["application/json"]["schema"]
    for word in [None, *metadata["valueLocation"].split(".")]:
        if word:
            schema = schema.get("properties", {}).get(word)
        while schema and "$ref" in schema:
            schema = api["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if not schema or schema.get("type") != "integer":
        return [f"{name}: no number is at {metadata['valueLocation']}"]
    return []


def mistakes(documents):
    """All that is wrong with the manifests of an overlay."""
    found = invalid(documents)
    for document in documents:
        kind = document["kind"]
        if kind in FOREIGN:
            found += unknown(document["spec"], FOREIGN[kind], kind)
        if document["metadata"].get("namespace") != "work":
            found.append(f"{kind} {document['metadata']['name']} is in no namespace")
    for name, labels, pod in pods(documents):
        found += unconfined(name, pod) + unprobed(name, labels, pod)
    return found + dangling(documents)


def misspelt(documents):
    """Misspells keys, one after the other; those that nobody notices."""
    paths = [
        ("Deployment", ["spec", "template", "spec", "securityContext"], "runAsNonRoot"),
        ("Deployment", ["spec", "template", "spec", "containers", 0], "livenessProbe"),
        ("Job", ["spec"], "backoffLimit"),
        ("PodDisruptionBudget", ["spec"], "maxUnavailable"),
        ("NetworkPolicy", ["spec"], "policyTypes"),
        ("ScaledObject", ["spec"], "minReplicaCount"),
        ("ScaledObject", ["spec", "triggers", 0, "metadata"], "valueLocation"),
        ("ServiceMonitor", ["spec", "endpoints", 0], "path"),
    ]
    for kind, path, key in paths:
        damaged = copy.deepcopy(documents)
        value = next(it for it in damaged if it["kind"] == kind)
        for step in path:
            value = value[step]
        value[f"{key}z"] = value[key]
        del damaged[: next(at for at, it in enumerate(damaged) if it["kind"] == kind)]
        document = damaged[0]
        found = unknown(document["spec"], FOREIGN[kind], kind) if kind in FOREIGN else invalid([document])
        if not any(f"{key}z" in it for it in found):
            yield f"{kind}: {key}z is accepted"


def main():
    if "--write" in sys.argv:
        with open(RULES, "w") as file:
            file.write(rules())
    found = []
    with open(RULES) as file:
        if file.read() != rules():
            found.append(f"{RULES} is not {ALERTS}: run scripts/kubernetes --write")
    for components in OVERLAYS:
        documents = list(yaml.safe_load_all(render(components)))
        wrong = mistakes(documents)
        found += [f"base with {components}: {it}" for it in wrong]
        print(f"base{''.join(f' + {name}' for name in components)}: {len(documents)} manifests")
        if len(components) == 3 and "keda" in components and not found:
            found += misspelt(documents)
    if found:
        raise SystemExit("\n".join(found))


os.environ["PATH"] = f"{os.path.abspath(BIN)}:{os.environ['PATH']}"
main()
