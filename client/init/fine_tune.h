// client/init/fine_tune.h: the draft of a job that fine-tunes a language model on documents: JSON
// lines of chats, of prompts with completions, or of texts. Texts with labels make a classifier.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "src/base/result.h"
#include "src/data/tokenizers/tokenizer_files.h"

namespace trainyard::init {

struct FineTuneDraft {
  std::string found;  // "500 chats"
  int64_t documents = 0;
  bool is_part = false;       // only the beginning of a large file was read
  bool has_labels = false;    // each text has the member `label`: the model learns to classify
  int64_t classes = 0;        // the different labels that were found
  bool has_end_token = true;  // false: the tokenizer has none
  // Tokens of a row, chosen by the longest document: by its tokens, or without a tokenizer by its
  // bytes.
  int64_t context_length = 0;
  int64_t batch_size = 0;
  int64_t epochs = 0;
  int64_t warmup_steps = 0;
};

struct FineTuneModel {
  int64_t positions_max = 0;      // the longest text that the model can read, in tokens
  TokenizerFiles tokenizer = {};  // none: lengths are estimated
};
/// Reads the beginning of a file of JSON lines, plain or compressed, of which it writes a copy into
/// the folder `scratch`. DATA_UNSUPPORTED names the first line that is no document, and what is
/// expected. With a tokenizer, refusals are also those of the dataset's reader.
Result<FineTuneDraft> draft_fine_tune(const std::filesystem::path& data, const FineTuneModel& model,
                                      const std::filesystem::path& scratch);

struct FineTuneNames {
  std::filesystem::path data, model;  // as the user named them
  std::filesystem::path file;         // the job file, to whose folder paths in it are relative
  std::string name, dataset;          // of the job and of its dataset
  std::string model_words;            // "Llama, 134,515,008 parameters"
};
std::string fine_tune_yaml(const FineTuneDraft& draft, const FineTuneNames& names);

}  // namespace trainyard::init
