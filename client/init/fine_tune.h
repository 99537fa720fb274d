// client/init/fine_tune.h: the draft of a job that fine-tunes a language model on documents: JSON
// lines of chats, of prompts with completions, or of texts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "src/base/result.h"

namespace trainyard::init {

struct FineTuneDraft {
  std::string found;  // "500 chats"
  int64_t documents = 0;
  bool is_part = false;  // only the beginning of a large file was read
  // Chosen by the lengths of the documents in bytes, since the tokenizer is not read here.
  int64_t context_length = 0;
  int64_t batch_size = 0;
  int64_t epochs = 0;
  int64_t warmup_steps = 0;
};

/// Reads the beginning of a file of JSON lines, plain or compressed. `positions_max`: the longest
/// text that the model can read, in tokens. DATA_UNSUPPORTED names the first line that is no
/// document, and what is expected.
Result<FineTuneDraft> draft_fine_tune(const std::filesystem::path& data, int64_t positions_max);

struct FineTuneNames {
  std::filesystem::path data, model;  // as the user named them
  std::filesystem::path file;         // the job file, to whose folder paths in it are relative
  std::string name, dataset;          // of the job and of its dataset
  std::string model_words;            // "Llama, 134,515,008 parameters"
};
std::string fine_tune_yaml(const FineTuneDraft& draft, const FineTuneNames& names);

}  // namespace trainyard::init
