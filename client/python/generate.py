#!/usr/bin/env python3
"""Generates the message classes trainyard/v1/*_pb2.py (and their types, *.pyi) from proto/.

    python generate.py [FOLDER]     # FOLDER contains the package `trainyard`; default src

`pip install` runs this itself (setup.py). Needs grpcio-tools, and no network.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# worker_service is left out: only the daemon and its workers use it.
PROTOS = ("job_spec", "model_spec", "layer_spec", "job_service", "dataset_service", "model_service",
          "system_service", "people_service", "spec_file", "spec_options")


def proto_folder() -> Path:
    """Returns the folder proto/ of the source archive or of the checkout."""
    for folder in (HERE / "proto", HERE.parents[1] / "proto"):
        if (folder / "trainyard/v1/job_service.proto").is_file():
            return folder
    raise SystemExit(f"{HERE}: no proto/ here or in {HERE.parents[1]}: install from a checkout of Trainyard")


def generate(folder: Path) -> None:
    """Writes FOLDER/trainyard/v1/*_pb2.py and *_pb2.pyi."""
    import grpc_tools
    from grpc_tools import protoc

    protos = proto_folder()
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    folder.mkdir(parents=True, exist_ok=True)
    code = protoc.main(["protoc", f"-I{protos}", f"-I{well_known}", f"--python_out={folder}", f"--pyi_out={folder}",
                        *(f"trainyard/v1/{name}.proto" for name in PROTOS)])
    if code != 0:
        raise SystemExit(f"protoc failed with exit status {code} on {protos}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "src")
