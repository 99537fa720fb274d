// server/processes/one_shot_tasks.h: the one-shot tasks that the daemon runs in workers, with a
// queue for each kind: how much workspace a job's kernels need, what an uploaded file contains,
// whether a GPU computes correctly, what the server's own files contain, how fast a device is. The
// daemon has no kernels, creates no CUDA context, and reads no untrusted or long file itself.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "server/inventory/checked_inventory.h"
#include "server/processes/one_shot_runner.h"
#include "trainyard/v1/dataset_service.pb.h"
#include "trainyard/v1/model_service.pb.h"

namespace trainyard::server {

/// The content of one of the server's own files or folders.
struct SourceContent {
  std::string sha256;
  std::string stamp;  // v1::IngestTask.stamps
};

/// A model that a worker has made of weights and a description.
struct ImportedModel {
  std::string digest;  // of model.safetensors
  v1::DatasetSchema schema;
  std::vector<v1::WeightTensor> tensors;
};

/// Thread-safe. Each `done` is called once. Errors in addition to the worker's:
/// RESOURCE_EXHAUSTED/*_BUSY, DEADLINE_EXCEEDED/*_TIMEOUT, with PLAN, INSPECT, IMPORT, CHECK,
/// DIGEST or CALIBRATION instead of the asterisk; INTERNAL/WORKER_LOST, WORKER_PROTOCOL_ERROR;
/// UNAVAILABLE/SERVER_DRAINING.
class OneShotTasks {
 public:
  /// `allowed_roots` are the folders of the server's own files.
  OneShotTasks(Supervisor& supervisor, StatePaths paths,
               std::vector<std::filesystem::path> allowed_roots);

  /// Measures the workspace, in bytes, of a job's kernels, prepared as for training, on the device
  /// that the task names. `gpu_uuid` is the device's UUID. The worker's errors:
  /// MODEL_OP_UNSUPPORTED, DEVICE_BUSY.
  void measure(v1::MeasureTask task, const std::string& gpu_uuid, Done<int64_t> done);
  /// Reads the header of the uploaded safetensors file with this digest. The worker's error:
  /// MODEL_FILE_INVALID.
  void inspect(const std::string& sha256, Done<std::vector<v1::WeightTensor>> done);
  /// Makes a model of two uploads: weights, and the text of a model.json, the description. The
  /// model's folder has the name `uid`. The worker's errors: MODEL_FILE_INVALID, and those of the
  /// file system.
  void import_model(const std::string& weights_sha256, const std::string& description_sha256,
                    const std::string& uid, Done<ImportedModel> done);
  /// Checks that a device computes correctly. FAILED_PRECONDITION/DEVICE_CHECK_FAILED if its
  /// results differ from the CPU's; DEVICE_BUSY, CUDA_UNAVAILABLE and similar errors if it cannot
  /// be used; or the error of a fault.
  void check_device(const Device& device, int threads, CheckedInventory::Done done);
  /// Reads the server's own files among the sources of `spec`. The result has an entry per source,
  /// which is empty for a source without a server path. The worker's errors: SERVER_PATH_...,
  /// SOURCE_CHANGED.
  void digest(const v1::DatasetSpec& spec, Done<std::vector<SourceContent>> done);
  /// Measures the device's rates (src/calibration/calibrate.h); the result is JSON.
  void calibrate(const Device& device, int32_t threads, v1::Recipe::Precision precision,
                 Done<std::string> done);

  /// Ends all waiting and later calls with UNAVAILABLE/SERVER_DRAINING.
  void drain();

 private:
  enum Kind : uint8_t { kMeasure, kInspect, kImport, kCheckDevice, kDigest, kCalibrate, kKinds };
  const StatePaths paths_;
  const std::vector<std::filesystem::path> allowed_roots_;
  std::array<OneShotRunner, kKinds> runners_;  // indexed by kind
};

}  // namespace trainyard::server
