// server/store/dataset_store.h: datasets. Thread-safe; see server/store/store.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/store/done.h"
#include "src/base/result.h"
#include "trainyard/v1/dataset_service.pb.h"

namespace trainyard::server {

class StoreCore;

struct Dataset {
  std::string tenant;
  std::string id;
  std::string digest;  // of sources and options; names the directory of the typed form
  v1::Dataset::State state = v1::Dataset::INGESTING;
  std::string reason;
  std::string message;
  v1::DatasetSpec spec;
  v1::DatasetSchema schema;  // READY
  int64_t size_bytes = 0;
  int64_t create_time_us = 0;

  std::string name() const { return "tenants/" + tenant + "/datasets/" + id; }
};
v1::Dataset to_proto(const Dataset& dataset);

struct NewDataset {
  std::string tenant = "default";
  std::string id;
  std::string digest;
  v1::DatasetSpec spec;
};
struct CreatedDataset {
  Dataset dataset;
  // True if this call must start an ingest of the digest. False: it is READY, or an ingest that was
  // asked for before is under way, for this dataset or for another one of the same digest.
  bool start_ingest = false;
};
struct DatasetPage {
  std::vector<Dataset> datasets;  // newest first
  std::string next_page_token;
};

class DatasetStore {
 public:
  explicit DatasetStore(StoreCore& core) : core_(core) {}

  /// The same id with the same digest answers with what is there; a FAILED one is tried again.
  /// ALREADY_EXISTS/DATASET_EXISTS for another digest.
  void create(NewDataset dataset, Done<CreatedDataset> done);
  Result<CreatedDataset> create(NewDataset dataset);

  /// Ends the ingest of a digest, for every INGESTING dataset that has it.
  void set_ready(std::string digest, v1::DatasetSchema schema, int64_t size_bytes, Done<void> done);
  Status set_ready(const std::string& digest, v1::DatasetSchema schema, int64_t size_bytes);
  void set_failed(std::string digest, std::string reason, std::string message, Done<void> done);
  Status set_failed(const std::string& digest, const std::string& reason,
                    const std::string& message);

  struct Removed {
    Dataset dataset;
    bool digest_unused = false;  // no other dataset has its digest: the typed form may go
  };
  /// FAILED_PRECONDITION/DATASET_IN_USE while an unfinished job names it; DATASET_NOT_FOUND.
  void remove(std::string tenant, std::string id, Done<Removed> done);
  Result<Removed> remove(const std::string& tenant, const std::string& id);

  Result<Dataset> find(const std::string& tenant, const std::string& id) const;
  Result<DatasetPage> list(const std::string& tenant, int32_t page_size,
                           const std::string& page_token) const;
  /// INGESTING datasets, one per digest: what a restarted daemon has to ingest again.
  Result<std::vector<Dataset>> list_ingesting() const;

 private:
  StoreCore& core_;
};

}  // namespace trainyard::server
