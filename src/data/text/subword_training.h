// src/data/text/subword_training.h: trains a subword tokenizer on a sample of a text of any size.
//
// A sentence is a line, or 4096 bytes of a longer one. At most kSentenceBytesMax bytes of sentences
// are kept. When there are more, every second kept sentence is dropped, and from then on only every
// second new one is added, and so on. So the sample is bounded, evenly spread over the text, and
// depends only on the text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "src/base/result.h"
#include "src/data/text/tokenizer.h"

namespace trainyard {

class SentenceSample {
 public:
  /// Adds UTF-8 text, whose end also ends a sentence.
  void add(std::string_view text);
  /// Returns the kept sentences, each of which ends with a line feed.
  const std::string& sentences() const { return kept_; }

 private:
  void add_sentence(std::string_view sentence);

  std::string kept_;
  uint64_t seen_ = 0;
  uint64_t stride_ = 1;
};

/// Returns the path of trainyard-tokenizer: in the folder of this program, unless
/// TRAINYARD_TOKENIZER_PROGRAM names another.
std::filesystem::path tokenizer_program();

/// Runs tokenizer_program() and returns its model, which has the same bytes for the same arguments.
/// Refusals:
/// DATASET_INVALID with `field`.vocabulary_size or `field`.tokenizer;
/// FAILED_PRECONDITION/TOKENIZER_UNAVAILABLE if the program is missing.
Result<std::string> train_subwords(TokenizerKind kind, const std::string& sentences,
                                   int64_t pieces_max, const std::string& field);

}  // namespace trainyard
