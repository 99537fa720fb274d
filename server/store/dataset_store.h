// server/store/dataset_store.h: datasets. Thread-safe; see server/store/store.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/store/dataset_ref.h"
#include "server/store/done.h"
#include "src/base/result.h"
#include "trainyard/v1/dataset_service.pb.h"

namespace trainyard::server {

class StoreCore;

/// One version of a dataset.
struct Dataset {
  std::string project;
  std::string id;
  int32_t version = 1;
  std::string digest;  // of sources and options; names the directory of the typed form
  v1::Dataset::State state = v1::Dataset::INGESTING;
  std::string reason;
  std::string message;
  v1::DatasetSpec spec;
  v1::DatasetSchema schema;  // READY
  int64_t size_bytes = 0;
  int64_t create_time_us = 0;

  DatasetRef ref() const { return {id, version}; }
  std::string name() const { return "projects/" + project + "/datasets/" + ref().text(); }
};
v1::Dataset to_proto(const Dataset& dataset);

struct NewDataset {
  std::string project = "default";
  std::string id;
  std::string digest;
  v1::DatasetSpec spec;
};
struct CreatedDataset {
  Dataset dataset;
  // True if this call must start an ingest of the digest. False: it is READY, or an earlier ingest
  // is running, for this dataset or another one with the same digest.
  bool start_ingest = false;
};
struct DatasetPage {
  std::vector<Dataset> datasets;  // newest first
  std::string next_page_token;
};

class DatasetStore {
 public:
  explicit DatasetStore(StoreCore& core) : core_(core) {}

  /// If the digest is that of the ID's newest version, returns that version and retries a FAILED
  /// one. Any other digest becomes the next version. Numbers are never reused, whatever is removed.
  Result<CreatedDataset> create(NewDataset dataset);

  /// Ends the ingest of a digest, for every INGESTING dataset that has it.
  void set_ready(std::string digest, v1::DatasetSchema schema, int64_t size_bytes, Done<void> done);
  void set_failed(std::string digest, std::string reason, std::string message, Done<void> done);

  struct Removed {
    std::vector<Dataset> datasets;
    std::vector<std::string>
        unused_digests;  // that no dataset has anymore: their files may be removed
  };
  /// Removes a version, or, without one, all versions of the ID. FAILED_PRECONDITION/DATASET_IN_USE
  /// while an unfinished job uses one of them; DATASET_NOT_FOUND.
  Result<Removed> remove(const std::string& project, const DatasetRef& ref);

  /// DATASET_NOT_FOUND lists the existing versions.
  Result<Dataset> find(const std::string& project, const DatasetRef& ref) const;
  /// For users of its data: without a version, the newest one that did not fail; if all failed, the
  /// newest.
  Result<Dataset> find_usable(const std::string& project, const DatasetRef& ref) const;
  /// Whether the typed form of this content exists.
  Result<bool> has_ready(const std::string& digest) const;
  /// The newest version of each id, or all.
  Result<DatasetPage> list(const std::string& project, bool all_versions, int32_t page_size,
                           const std::string& page_token) const;
  /// Grows with each change above before that change is answered: what was found while it stays
  /// the same is what would be found again.
  int64_t changes() const;
  /// INGESTING datasets, one per digest: what a restarted daemon must ingest again.
  Result<std::vector<Dataset>> list_ingesting() const;

 private:
  StoreCore& core_;
};

}  // namespace trainyard::server
