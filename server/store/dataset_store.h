// server/store/dataset_store.h: stores datasets. Thread-safe; see server/store/store.h.
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
  std::string digest;  // of sources and options; also names the directory of the typed rows
  v1::Dataset::State state = v1::Dataset::INGESTING;
  std::string reason;
  std::string message;
  v1::DatasetSpec spec;
  v1::DatasetSchema schema;  // only set if the dataset is READY
  int64_t size_bytes = 0;
  int64_t create_time_us = 0;
  std::string owner;  // who created it; empty if unknown

  DatasetRef ref() const { return {id, version}; }
  std::string name() const { return "projects/" + project + "/datasets/" + ref().text(); }
};
v1::Dataset to_proto(const Dataset& dataset);

struct NewDataset {
  std::string project;
  std::string id;
  std::string digest;
  v1::DatasetSpec spec;
  std::string owner;
  bool may_change_others = false;  // may add versions to datasets of others
};
struct CreatedDataset {
  Dataset dataset;
  // Whether the caller must start an ingest of the digest. False if a dataset with the digest is
  // READY already, or an ingest of the digest is running.
  bool start_ingest = false;
};
struct DatasetPage {
  std::vector<Dataset> datasets;  // newest first
  std::string next_page_token;
};

class DatasetStore {
 public:
  explicit DatasetStore(StoreCore& core) : core_(core) {}

  /// If the newest version of the ID has this digest, returns that version, and retries its ingest
  /// if it is FAILED. Otherwise creates the next version. Version numbers are never reused, not
  /// even those of removed versions. PERMISSION_DENIED/ROLE_REQUIRED if the newest version belongs
  /// to somebody else: jobs that name no version would use the new one.
  Result<CreatedDataset> create(NewDataset dataset);

  /// Ends the ingest of a digest, for every INGESTING dataset that has it.
  void set_ready(std::string digest, v1::DatasetSchema schema, int64_t size_bytes, Done<void> done);
  void set_failed(std::string digest, std::string reason, std::string message, Done<void> done);

  struct Removed {
    std::vector<Dataset> datasets;
    std::vector<std::string>
        unused_digests;  // digests that no dataset has anymore; the caller may delete their files
  };
  /// Removes the given version, or all versions of the ID if `ref` has none. Errors:
  /// FAILED_PRECONDITION/DATASET_IN_USE while an unfinished job uses one of them;
  /// DATASET_NOT_FOUND.
  Result<Removed> remove(const std::string& project, const DatasetRef& ref);

  /// Without a version, returns the newest one. The message of DATASET_NOT_FOUND lists the existing
  /// versions.
  Result<Dataset> find(const std::string& project, const DatasetRef& ref) const;
  /// Like find(), for callers that read the data: without a version in `ref`, returns the newest
  /// version that is not FAILED, or the newest if all are.
  Result<Dataset> find_usable(const std::string& project, const DatasetRef& ref) const;
  /// Returns whether a dataset with this digest is READY, so that its typed rows exist.
  Result<bool> has_ready(const std::string& digest) const;
  /// Returns whether such a dataset belongs to the project.
  Result<bool> has_ready(const std::string& project, const std::string& digest) const;
  /// Returns a page of datasets: all versions, or only the newest version of each ID.
  Result<DatasetPage> list(const std::string& project, bool all_versions, int32_t page_size,
                           const std::string& page_token) const;
  /// Returns a counter that each of the changes above increments before its caller gets the result.
  /// While the counter stays the same, a cached result of find() is still valid.
  int64_t changes() const;
  /// Returns the INGESTING datasets, one per digest. A restarted daemon must ingest them again.
  Result<std::vector<Dataset>> list_ingesting() const;

 private:
  StoreCore& core_;
};

}  // namespace trainyard::server
