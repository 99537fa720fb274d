// tests/engine/random_model.h: folders of language models with random weights, for tests of their
// use.
#pragma once

#include <filesystem>
#include <string>

#include "src/artifact/model_artifact.h"

namespace trainyard::testing {

/// A language model over the characters "a" to "p" and of so many tokens of context, with weights
/// that are random and large enough that the likeliest token changes with the text.
ModelInfo letters_model(ModelSpec spec, int64_t context);

/// Writes the folder of a model with random weights, which depend on the tensors' names alone.
void write_random_model(const std::filesystem::path& folder, const ModelInfo& info);

ModelSpec small_gpt2();
/// With heads of keys that several heads of queries share, a window in one layer, and normalized
/// heads.
ModelSpec small_decoder();

/// Writes a model of chats in ChatML with a token for each byte, which answers every chat with
/// `answer`, whose characters must differ, and then ends. It sees `context` tokens.
void write_chat_model(const std::filesystem::path& folder, const std::string& answer,
                      int64_t context);

}  // namespace trainyard::testing
