// src/inference/prompt_reader.h: the texts of a language model: prompts as tokens, and tokens as
// text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/artifact/model_artifact.h"
#include "src/base/result.h"
#include "src/data/text/tokenizer.h"
#include "src/data/tokenizers/pretrained_tokenizer.h"
#include "src/inference/prompt.h"

namespace trainyard {

/// Const and thread-safe after construction.
class PromptReader {
 public:
  explicit PromptReader(const ModelInfo& info);

  /// PROMPT_INVALID, or the refusals of a chat's template; the field is "prompt" or "messages".
  Result<std::vector<int32_t>> read(const Prompt& prompt) const;

  int64_t vocabulary_size() const { return static_cast<int64_t>(texts_.size()); }
  /// The bytes that a token adds to a text.
  const std::string& text_of(int32_t token) const { return texts_[static_cast<size_t>(token)]; }
  /// Whether the token ends a text or an answer.
  bool is_end(int32_t token) const;
  /// Whether row `id` of the model's head is a token that a text may have.
  bool may_draw(int64_t id) const {
    return id < vocabulary_size() && drawn_[static_cast<size_t>(id)];
  }
  /// Whether generated text must be well-formed UTF-8.
  bool whole_characters() const { return text_.tokenizer != TokenizerKind::kByte; }
  /// Whether the model was trained on one long text, through which its context slides.
  bool slides() const { return slides_; }

 private:
  Result<std::vector<int32_t>> read_text(std::string_view text) const;
  Result<std::vector<int32_t>> read_chat(const std::vector<Message>& messages) const;

  const TextSchema text_;
  const bool slides_;
  const std::string template_;  // the family that the training named; empty: the tokenizer's
  std::unique_ptr<const Tokenizer> tokenizer_;     // unless the tokenizer is pretrained
  std::optional<PretrainedTokenizer> pretrained_;  // else
  std::vector<std::string> texts_;                 // by token; empty: not shown
  std::vector<bool> drawn_;                        // by token: may be drawn
  std::vector<int32_t> ends_;
};

}  // namespace trainyard
