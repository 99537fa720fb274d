// src/data/documents/documents_dataset.h: reads documents for a language model by the tokenizer of
// a pretrained model.
#pragma once

#include <filesystem>

#include "src/data/tokenizers/tokenizer_files.h"
#include "src/data/typed_dataset.h"

namespace trainyard {

/// `train` and `test` are JSON lines (document_line.h). If `test` is empty, options.test_share of
/// `train` is the test set. Refusals: as of all readers, and TOKENIZER_INVALID, TEMPLATE_UNKNOWN.
Result<TypedDataset> read_documents_dataset(const DocumentsOptions& options, TokenizerFiles files,
                                            const std::filesystem::path& train,
                                            const std::filesystem::path& test);

}  // namespace trainyard
