// proto/convert/data.h: converts datasets between messages and the engine's types.
#pragma once

#include <filesystem>
#include <span>

#include "src/base/result.h"
#include "src/data/dataset.h"
#include "trainyard/v1/dataset_service.pb.h"

namespace trainyard {

/// Converts a spec to an ingest request. `paths` are in the order of spec.sources(). Refuses a
/// missing format or target, an unknown role, and roles that do not belong to the format.
Result<IngestRequest> to_ingest_request(const v1::DatasetSpec& spec,
                                        std::span<const std::filesystem::path> paths);

/// Returns the engine's name of a source's role: "train_images".
std::string to_role(v1::DatasetSource::Role role);

v1::DatasetSchema to_proto(const DatasetSchema& schema);

}  // namespace trainyard
