"""Asks the arbiter, parity.py, one question: arbiter.py PATH unknown|open|compare|corpus, input on stdin, answer as JSON on stdout."""
import base64, importlib.util, json, sys
from pathlib import Path

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool


def unknown(descriptors):
    """What of the Envoy part of our descriptor set its packages lack: messages, fields, enum values."""
    ours, pool, out = descriptor_pb2.FileDescriptorSet.FromString(descriptors), descriptor_pool.Default(), []

    def message(prefix, m):
        name = f"{prefix}.{m.name}"
        try:
            theirs = pool.FindMessageTypeByName(name)
            out.extend(f"{name}.{f.name}" for f in m.field if f.name not in theirs.fields_by_name)
        except KeyError:
            out.append(name)
        for inner in m.nested_type:
            message(name, inner)
        for inner in m.enum_type:
            enum(name, inner)

    def enum(prefix, e):
        name = f"{prefix}.{e.name}"
        try:
            theirs = pool.FindEnumTypeByName(name)
            out.extend(f"{name}.{v.name}" for v in e.value if v.name not in theirs.values_by_name)
        except KeyError:
            pass    # its message or the fields of this type are unknown too

    for f in (f for f in ours.file if f.package.split(".")[0] not in ("istio", "stats")):
        for m in f.message_type:
            message(f.package, m)
        for e in f.enum_type:
            enum(f.package, e)
    return sorted(out)


def corpus(parity, folder):
    """How the arbiter reads each case: objects by file, nodes, recorded answers."""
    out, parity.yaml.SafeLoader = {}, getattr(parity.yaml, "CSafeLoader", parity.yaml.SafeLoader)    # ten times as fast
    for case in sorted(p.parent for p in Path(folder).glob("*/proxies.yaml")):
        objects, spec = parity.files(case)
        nodes = {p["name"]: parity.to_dict(parity.node_of(p)) for p in spec["proxies"]}
        out[case.name] = {"objects": objects, "nodes": nodes, "expected": parity.expected(case, spec)}
    return out


def compared(parity, case, want, got):
    same, total, _, _, lines = parity.compare(case, want, got, True)
    return {"same": same, "total": total, "lines": lines}


def main():
    spec = importlib.util.spec_from_file_location("parity", sys.argv[1])
    parity = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(parity)
    parity.load_protos()
    question, data = sys.argv[2], sys.stdin.buffer.read()
    if question == "unknown":
        answer = unknown(data)
    elif question == "open":
        answer = [parity.decode(any_pb2.Any(type_url=t, value=base64.b64decode(v))) for t, v in json.loads(data)]
    elif question == "compare":
        answer = [compared(parity, *one) for one in json.loads(data)]
    else:
        answer = corpus(parity, data.decode())
    json.dump(answer, sys.stdout)


main()
