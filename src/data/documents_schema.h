// src/data/documents_schema.h: what a schema says about documents for a language model: how long
// they are, so that planning counts a job's rows without the data.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "src/base/result.h"

namespace trainyard {

/// The documents of one partition.
struct DocumentCounts {
  std::map<int64_t, int64_t> lengths;  // number of documents with so many tokens
  int64_t counted = 0;                 // tokens that are predicted and count in the loss

  int64_t documents() const;
  int64_t tokens() const;
  int64_t longest() const;  // 0: there are no documents
  /// Returns the least length that at least this share of the documents, (0, 1], does not exceed.
  int64_t quantile(double share) const;

  bool operator==(const DocumentCounts&) const = default;
};

struct DocumentsSchema {
  DocumentCounts train, test;
  std::string chat_template = {};  // the family of the template; empty: there are no chats

  bool operator==(const DocumentsSchema&) const = default;
};

nlohmann::json documents_to_json(const DocumentsSchema& documents);
/// Refusal: DATASET_INVALID.
Result<DocumentsSchema> documents_from_json(const nlohmann::json& json);

}  // namespace trainyard
