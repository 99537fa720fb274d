// client/init/job_draft.h: the content of a job file before it is written: what was found in the
// data, what is left out and why, and the recipe to start with.
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
  std::string says;  // "number, 4.3 to 7.9"; or why it is left out
};

/// A field of the dataset, as a spec writes it.
struct DraftField {
  std::string name;
  std::string value;                   // YAML; empty: the field is the list `items`
  std::string says = {};               // the comment after the field, on the same line
  std::vector<ColumnNote> items = {};  // column names, each with a comment
};

struct DraftSource {
  std::string field;  // "path", "train_images"
  std::filesystem::path path;
};

struct JobDraft {
  std::string found;   // what the data is: "a CSV file with 150 rows and 5 columns"
  std::string format;  // of the dataset: "csv"; empty if the sources imply it ("idx")
  std::vector<DraftSource> sources;
  std::vector<DraftField> fields;   // settings of the format
  std::vector<ColumnNote> columns;  // columns of a table, in the file's order
  std::string target;               // a column's name; empty if the data has no columns
  std::string target_says;          // "3 classes: setosa (50), versicolor (50), virginica (50)"
  std::string target_why;           // why this column was chosen; empty if the user named it
  std::string target_certainty;     // "sure", "likely", "a guess"; empty if the user named it
  std::vector<std::string> target_others;  // the next candidates, the best first, at most two
  std::vector<std::string> notes;          // further remarks for the user
  DataFacts facts;
  FirstGuess guess;
};

struct DraftOptions {
  std::string target;             // the target's column; empty: chosen automatically
  std::filesystem::path scratch;  // an empty folder that must exist during the call
  int64_t head_bytes = kHeadBytesMax;
};

/// Returns how sure the choice of the target is and what else it may be, such as "likely: chosen as
/// the last suitable column; next would be 'age', 'income'"; empty if the user named the target.
std::string choice_text(const JobDraft& draft);

/// Inspects a file or a folder. Of a large table only the beginning is read
/// (DraftOptions::head_bytes). Errors name the kind of data and say how to convert it to a
/// supported form.
Result<JobDraft> draft_job(const std::filesystem::path& data, const DraftOptions& options);

}  // namespace trainyard::init
