#!/usr/bin/env python3
"""Tokens a second of `tapml serve` under load, for a shape with random weights: f16 and packed, with few clients and many.

    python3 tools/serve_load.py --target cuda --out load.json

Starts a server for each form, asks it by `tapml bench serve` with each number of clients, and prints a line for each.
"""

import argparse
import json
import signal
import subprocess
import sys


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tapml", default="target/release/tapml", help="the command")
    parser.add_argument("--shape", default="tools/shapes/llama-3.1-8b", help="folder with a config.json")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--forms", nargs="+", default=["f16", "q4"], help="f16, f32, or a packing such as q4")
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 8, 32, 64, 128])
    parser.add_argument("--lengths", default="512+128", help="tokens of prompts and answers")
    parser.add_argument("--rounds", type=int, default=4, help="requests of each client")
    parser.add_argument("--context", type=int, default=768)
    parser.add_argument("--rows", type=int, default=512, help="most tokens of a step")
    parser.add_argument("--memory", type=int, default=24 << 30, help="bytes for keys and values")
    parser.add_argument("--out", help="file for all reports as JSON")
    return parser.parse_args()


def serve(args, form):
    """The server's process and its report, when it listens."""
    command = [args.tapml, "serve", args.shape, "--random", "--target", args.target, "--check", "off"]
    command += ["--port", "0", "--json", "-", "--context", str(args.context), "--memory", str(args.memory)]
    most = str(max(args.clients))
    command += ["--max-rows", str(args.rows), "--max-sequences", most, "--max-concurrent", str(max(256, max(args.clients)))]
    command += ["--activation", "f32" if form == "f32" else "f16"]
    command += [] if form in ("f16", "f32") else ["--quantize", form]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    text = ""
    while not text.endswith("\n}\n"):
        line = process.stdout.readline()
        if not line:
            sys.exit(f"the server ended with {process.wait()}: {' '.join(command)}")
        text += line
    return process, json.loads(text)


def measure(args, url, clients):
    command = [args.tapml, "bench", "serve", url, "--clients", str(clients), "--requests", str(clients * args.rounds)]
    command += ["--lengths", args.lengths, "--context", str(args.context), "--json", "-"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return json.loads(done.stdout) if done.stdout else {"failed": clients, "errors": [f"exit {done.returncode}"]}


def main():
    args = arguments()
    reports = []
    for form in args.forms:
        process, server = serve(args, form)
        try:
            url = server["url"].removesuffix("/v1")
            # The first requests compile what is not compiled yet.
            measure(args, url, 1)
            for clients in args.clients:
                report = measure(args, url, clients)
                reports.append({"form": form, **report})
                if "output_tps" not in report:
                    print(form, clients, report, flush=True)
                    continue
                first, between = report["ttft_ms"]["median"], report["itl_ms"]["median"]
                print(
                    f"{form:>4} {clients:>4} clients {report['output_tps']:>9.1f} tokens/s, first token {first:.0f} ms,"
                    f" between tokens {between:.2f} ms, {report['failed']} failed",
                    flush=True,
                )
                if args.out:
                    with open(args.out, "w", encoding="utf-8") as file:
                        json.dump(reports, file, indent=1)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


if __name__ == "__main__":
    main()
