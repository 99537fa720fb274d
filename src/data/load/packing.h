// src/data/load/packing.h: puts documents of different lengths into rows of a job's context length.
//
// A document takes as many places as it has tokens; a longer one than a row is cut to its first
// tokens. Documents are placed from the longest to the shortest, each in the row with the least
// room that is enough for it (best fit decreasing: Johnson 1973), so the number of rows follows
// from the lengths alone, and planning counts them without the data. Without packing, each document
// has a row of its own.
//
// The tokens of a row, their places and targets: token i of a document has place i, and its target
// is token i + 1, if that one counts, else -1. Behind the last document, tokens are the padding
// with place 0 and target -1.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/load/split.h"

namespace trainyard {

/// The rows of one partition's documents.
struct PackedRows {
  int64_t context_length = 0;
  int32_t padding = 0;                // the token behind the last document of a row
  std::vector<int64_t> documents;     // of all rows, one row after the other
  std::vector<int64_t> firsts = {0};  // [rows + 1], where the documents of each row begin

  int64_t rows() const { return std::ssize(firsts) - 1; }
  std::span<const int64_t> documents_of(int64_t row) const {
    const auto at = static_cast<size_t>(row);
    return std::span(documents).subspan(static_cast<size_t>(firsts[at]),
                                        static_cast<size_t>(firsts[at + 1] - firsts[at]));
  }
};

/// Returns the context length of a job that does not choose one: 1024 tokens, or fewer if no
/// document is longer.
int64_t default_context_length(const DocumentsSchema& documents);

/// Returns the number of rows for documents of these lengths. `packs`: several share a row.
int64_t count_packed_rows(const std::map<int64_t, int64_t>& lengths, int64_t context_length,
                          bool packs);

/// The rows of a job, and what is cut off.
struct DocumentRows {
  int64_t train = 0, validation = 0, test = 0;
  int64_t train_documents = 0, train_tokens = 0;  // what is trained on, without what is cut off
  int64_t cut_documents = 0, cut_tokens = 0;      // of all documents that are not of the test set
};
/// Counts the rows from the schema alone.
DocumentRows count_document_rows(const DatasetSchema& schema, int64_t context_length,
                                 const SplitRule& rule);

/// Returns the token behind the last document of a row, which no model sees together with it.
int32_t padding_of(const TextSchema& text);

/// Puts documents into rows. The rows are in the order of their first documents, and so are the
/// documents of a row.
PackedRows pack_documents(std::span<const int64_t> starts, std::span<const int64_t> documents,
                          int64_t context_length, bool packs, int32_t padding);

/// Splits the documents and puts both parts into rows, `split.packed`: first those to train on.
Split split_documents(const DatasetSchema& schema, const Partition& train, int64_t context_length,
                      const SplitRule& rule);
/// Returns the rows of all documents of a partition.
std::shared_ptr<const PackedRows> pack_all(const DatasetSchema& schema, const Partition& partition,
                                           int64_t context_length, bool packs);

/// Writes a row of `partition.packed`: each span has context_length elements.
void copy_packed_row(const Partition& partition, int64_t row, std::span<int32_t> tokens,
                     std::span<int32_t> positions, std::span<int32_t> targets);

}  // namespace trainyard
