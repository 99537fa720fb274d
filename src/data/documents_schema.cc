#include "src/data/documents_schema.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "src/base/json_fields.h"
#include "src/data/limits.h"

namespace trainyard {
namespace {

constexpr const char* kDocumentsInvalid = "DATASET_INVALID";

/// Lengths are written as a list of pairs, since keys of objects would be texts.
nlohmann::json counts_to_json(const DocumentCounts& counts) {
  nlohmann::json lengths = nlohmann::json::array();
  for (const auto& [length, count] : counts.lengths) lengths.push_back({length, count});
  return {{"lengths", std::move(lengths)}, {"counted", counts.counted}};
}

Result<DocumentCounts> document_counts_from_json(const nlohmann::json& json) {
  JsonFields fields(json, "schema: documents", kDocumentsInvalid);
  DocumentCounts counts;
  int64_t documents = 0, tokens = 0;
  for (const nlohmann::json& pair : fields.child("lengths")) {
    const bool valid = pair.is_array() && pair.size() == 2 && pair[0].is_number_integer() &&
                       pair[1].is_number_integer();
    const int64_t length = valid ? pair[0].get<int64_t>() : 0;
    const int64_t count = valid ? pair[1].get<int64_t>() : 0;
    // The bounds keep products and sums below 2^62.
    if (length < 1 || length > kRowsMax || count < 1 || count > kRowsMax / length ||
        !counts.lengths.emplace(length, count).second) {
      fields.refuse("lengths: expected pairs of a length and a number of documents");
      break;
    }
    documents += count;
    tokens += length * count;
    if (documents > kRowsMax || tokens > kRowsMax) {
      fields.refuse("lengths: expected at most " + std::to_string(kRowsMax) + " tokens");
      break;
    }
  }
  counts.counted = fields.integer("counted", 0, tokens);
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
  return counts;
}

}  // namespace

int64_t DocumentCounts::documents() const {
  int64_t documents = 0;
  for (const auto& [length, count] : lengths) documents += count;
  return documents;
}

int64_t DocumentCounts::tokens() const {
  int64_t tokens = 0;
  for (const auto& [length, count] : lengths) tokens += length * count;
  return tokens;
}

int64_t DocumentCounts::longest() const { return lengths.empty() ? 0 : lengths.rbegin()->first; }

int64_t DocumentCounts::quantile(double share) const {
  const auto wanted = static_cast<int64_t>(std::ceil(share * static_cast<double>(documents())));
  int64_t seen = 0;
  for (const auto& [length, count] : lengths) {
    seen += count;
    if (seen >= wanted) return length;
  }
  return longest();
}

nlohmann::json documents_to_json(const DocumentsSchema& documents) {
  nlohmann::json json = {{"train", counts_to_json(documents.train)},
                         {"test", counts_to_json(documents.test)}};
  if (!documents.chat_template.empty()) json["chat_template"] = documents.chat_template;
  return json;
}

Result<DocumentsSchema> documents_from_json(const nlohmann::json& json) {
  JsonFields fields(json, "schema: documents", kDocumentsInvalid);
  DocumentsSchema documents;
  ASSIGN_OR_RETURN(documents.train, document_counts_from_json(fields.child("train")));
  ASSIGN_OR_RETURN(documents.test, document_counts_from_json(fields.child("test")));
  if (fields.has("chat_template")) documents.chat_template = fields.text("chat_template");
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
  return documents;
}

}  // namespace trainyard
