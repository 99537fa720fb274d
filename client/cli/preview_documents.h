// client/cli/preview_documents.h: shows rows of documents token by token, and which tokens count.
#pragma once

#include <cstdint>

#include "client/cli/session.h"
#include "src/base/result.h"
#include "src/data/dataset.h"
#include "src/job/recipe.h"

namespace trainyard::cli {

/// Shows the first `rows` training rows of a job with this recipe, as it would see them without
/// `shuffle`.
Result<int> preview_documents(Session& session, Dataset& data, const Recipe& recipe, int64_t rows);

/// One row as `dataset preview` shows it.
struct PreviewedRow {
  struct Token {
    int32_t id = 0;
    std::string text;     // the bytes of its text; empty for padding
    bool counts = false;  // it is predicted and counts in the loss
  };
  std::vector<std::vector<Token>> documents;
  std::vector<int64_t> numbers;  // of the documents, from 0, in the order of the file
  int64_t padding = 0;           // places behind the last document
};
PreviewedRow previewed_row(const Dataset& data, int64_t row,
                           const std::vector<std::string>& token_texts);
/// Renders a row: with color, tokens that count are green and the others dim; without, tokens that
/// count are in brackets.
std::string render_row(const PreviewedRow& row, bool colour);

}  // namespace trainyard::cli
