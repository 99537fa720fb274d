// server/processes/errands.h: the questions that the daemon asks a worker of its own, of which
// each kind has a queue: how much workspace a job's kernels need, what an uploaded file holds,
// whether a GPU computes correctly, what the server's own files contain, how fast a device is. The
// daemon has no kernels,
// creates no CUDA context, and reads no untrusted or long file itself.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "server/inventory/checked_inventory.h"
#include "server/processes/errand.h"
#include "trainyard/v1/dataset_service.pb.h"
#include "trainyard/v1/model_service.pb.h"

namespace trainyard::server {

/// Of one of the server's own files or folders.
struct SourceContent {
  std::string sha256;
  std::string stamp;  // v1::IngestTask.stamps
};

/// Thread-safe. Each `done` is called once. Errors, besides the worker's:
/// RESOURCE_EXHAUSTED/*_BUSY, DEADLINE_EXCEEDED/*_TIMEOUT, with PLAN, INSPECT, CHECK, DIGEST and
/// CALIBRATION in place of the asterisk; INTERNAL/WORKER_LOST, WORKER_PROTOCOL;
/// UNAVAILABLE/SERVER_DRAINING.
class Errands {
 public:
  /// `allowed_roots`: the folders of the server's own files.
  Errands(Supervisor& supervisor, StatePaths paths,
          std::vector<std::filesystem::path> allowed_roots);

  /// The bytes of workspace of a job's kernels, prepared as for training, on the device that the
  /// task names, a GPU of this UUID. The worker's errors: MODEL_OP_UNSUPPORTED, DEVICE_BUSY.
  void measure(v1::MeasureTask task, const std::string& gpu_uuid, Done<int64_t> done);
  /// The header of the uploaded safetensors file with this digest. The worker's:
  /// MODEL_FILE_INVALID.
  void inspect(const std::string& sha256, Done<std::vector<v1::WeightTensor>> done);
  /// FAILED_PRECONDITION/DEVICE_CHECK_FAILED if the device's results differ from the CPU's;
  /// DEVICE_BUSY, CUDA_UNAVAILABLE and similar if it cannot be used; or its fault.
  void check_device(const Device& device, int threads, CheckedInventory::Done done);
  /// By source of `spec`; empty for one without a server path. The worker's: SERVER_PATH_...,
  /// SOURCE_CHANGED.
  void digest(const v1::DatasetSpec& spec, Done<std::vector<SourceContent>> done);
  /// The device's rates (src/calibration/calibrate.h) as JSON.
  void calibrate(const Device& device, int32_t threads, v1::Recipe::Precision precision,
                 Done<std::string> done);

  /// Answers all waiting and later calls with UNAVAILABLE/SERVER_DRAINING.
  void drain();

 private:
  enum Kind : uint8_t { kMeasure, kInspect, kCheckDevice, kDigest, kCalibrate, kKinds };
  const StatePaths paths_;
  const std::vector<std::filesystem::path> allowed_roots_;
  std::array<ErrandRunner, kKinds> runners_;  // by kind
};

}  // namespace trainyard::server
