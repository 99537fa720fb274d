// client/init/job_draft.h: a job file before it is written: what was found in the data, what is
// left out and why, and what to begin with.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "client/init/first_guess.h"
#include "client/init/table_head.h"
#include "src/base/result.h"

namespace trainyard::init {

struct ColumnNote {
  enum class Use : uint8_t { kTarget, kLearnedFrom, kLeftOut } use = Use::kLearnedFrom;
  std::string name;
  std::string says;  // "number, 4.3 to 7.9"; why it is left out
};

/// A field of the dataset, as a spec writes it.
struct DraftField {
  std::string name;
  std::string value;                   // YAML; empty: a list, of `items`
  std::string says = {};               // the comment beside it
  std::vector<ColumnNote> items = {};  // names of columns, with a comment each
};

struct DraftSource {
  std::string field;  // "path", "train_images"
  std::filesystem::path path;
};

struct JobDraft {
  std::string found;   // "a CSV file with 150 rows and 5 columns"
  std::string format;  // of the dataset: "csv"; empty: the sources alone say it ("idx")
  std::vector<DraftSource> sources;
  std::vector<DraftField> fields;   // of the format
  std::vector<ColumnNote> columns;  // of a table, in the file's order
  std::string target;               // a column's name; empty where there are no columns
  std::string target_says;          // "3 classes: setosa (50), versicolor (50), virginica (50)"
  std::string target_why;           // why this column, where nobody named it
  std::vector<std::string> notes;   // what else a person should know
  DataFacts facts;
  FirstGuess guess;
};

struct DraftOptions {
  std::string target;             // a column; empty: chosen
  std::filesystem::path scratch;  // an empty folder that lives as long as the call
  int64_t head_bytes = kHeadBytesMax;
};

/// Looks at a file or a folder. Of a large table only the beginning is read (kHeadBytesMax).
/// Refusals name what the data is and how to bring it into a form that is read.
Result<JobDraft> draft_job(const std::filesystem::path& data, const DraftOptions& options);

}  // namespace trainyard::init
