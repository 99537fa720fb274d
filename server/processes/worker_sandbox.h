// server/processes/worker_sandbox.h: the sandboxes of this daemon's tasks, by what the tasks do
// (server/sandbox/sandbox.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "trainyard/v1/dataset_service.pb.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard::server {

void add_readable(v1::WorkerSandbox& sandbox, const std::filesystem::path& path);

/// For a task that reads untrusted files and may use three quarters of the machine's memory.
v1::WorkerSandbox parsing_sandbox();
/// Adds a folder in which the task may write files, each of them smaller than the disk's free space
/// by a sixteenth.
void add_scratch(v1::WorkerSandbox& sandbox, const std::filesystem::path& folder);
/// Adds the sources of a dataset that are the server's own files.
void add_server_sources(v1::WorkerSandbox& sandbox, const v1::DatasetSpec& spec);
/// Returns whether an ingest learns a tokenizer from the dataset's text.
bool learns_tokenizer(const v1::DatasetSpec& spec);

/// For a task that computes on the device: none on a GPU, which has no sandbox yet.
v1::WorkerSandbox computing_sandbox(const std::string& device);

/// For an attempt of a job on the CPU that writes into `folder`. `planned_bytes` is the memory of
/// its plan, with that of mapped files.
v1::WorkerSandbox training_sandbox(const std::filesystem::path& folder, int64_t planned_bytes);

}  // namespace trainyard::server
