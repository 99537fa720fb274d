// Drafts for NPZ, safetensors and NPY files, and for sparse rows. The files are read completely, as
// an ingest would.
#include <algorithm>
#include <array>
#include <optional>

#include "client/init/draft_parts.h"
#include "src/base/join.h"
#include "src/base/text.h"
#include "src/data/arrays/array_file.h"
#include "src/data/statistics.h"
#include "src/data/typed_dataset.h"

namespace trainyard::init {
namespace {

namespace fs = std::filesystem;

struct Pair {
  std::string_view inputs, targets;
};
constexpr std::array<Pair, 12> kPairs = {{{"inputs", "targets"},
                                          {"x_train", "y_train"},
                                          {"X_train", "y_train"},
                                          {"train_x", "train_y"},
                                          {"train_images", "train_labels"},
                                          {"train_inputs", "train_targets"},
                                          {"x", "y"},
                                          {"X", "y"},
                                          {"X", "Y"},
                                          {"images", "labels"},
                                          {"features", "labels"},
                                          {"data", "target"}}};

/// Sets what was found and the facts of a draft from the ingested data.
void describe(const TypedDataset& data, const std::string& what, JobDraft& draft) {
  const DatasetSchema& schema = data.schema;
  const bool images = schema.kind == DatasetSchema::Kind::kImage;
  draft.found = what + " with " + count_of(schema.train_rows, "row") +
                (images ? " of images " + schema.image.to_string()
                        : " and " + count_of(std::ssize(schema.columns), "column"));
  draft.facts.kind = images ? DataFacts::Kind::kImages : DataFacts::Kind::kTable;
  draft.facts.image = schema.image;
  draft.facts.inputs = std::ssize(schema.columns);
  describe_target(schema, measure(schema, data.train), images ? "image" : "row", draft);
  draft.guess = first_guess(draft.facts);
}

std::string kind_of(const DatasetSchema& schema) {
  return schema.target.kind == TargetSchema::Kind::kClass ? "class" : "numeric";
}

/// Returns the names that the matching file of targets (or of inputs) may have: "train_x" matches
/// "train_y".
std::vector<std::string> partners_of(const std::string& name, bool of_inputs) {
  std::vector<std::string> found;
  for (const Pair& pair : kPairs) {
    const std::string_view here = of_inputs ? pair.inputs : pair.targets;
    const std::string_view there = of_inputs ? pair.targets : pair.inputs;
    for (const std::string_view joint : {"_", "-", "."}) {
      if (name == here) found.emplace_back(there);
      const std::string end = std::string(joint) + std::string(here);
      if (name.ends_with(end)) {
        found.push_back(name.substr(0, name.size() - here.size()) + std::string(there));
      }
    }
  }
  return found;
}

}  // namespace

Result<JobDraft> draft_arrays(const fs::path& path, const std::string& target) {
  ASSIGN_OR_RETURN(const ArrayFile file, ArrayFile::read(path, path.string(), {}));
  const auto has = [&](std::string_view name) {
    return std::ranges::find(file.all_names(), name) != file.all_names().end();
  };
  ArraysOptions options;
  const auto pair = std::ranges::find_if(kPairs, [&](const Pair& p) {
    return has(p.inputs) && has(p.targets) && (target.empty() || p.targets == target);
  });
  if (pair != kPairs.end()) {
    options.inputs = pair->inputs;
    options.targets = pair->targets;
  } else if (file.all_names().size() == 2 && has(target)) {
    options.targets = target;
    options.inputs = file.all_names()[file.all_names()[0] == target ? 1 : 0];
  } else {
    std::vector<std::string> names;
    for (const std::string& name : file.all_names()) names.push_back(quoted_value(name));
    return unsupported(
        path.string() + " has the arrays " + joined(names, " and ") +
        ", and their names do not show which are inputs and which targets. Rename them: "
        "numpy.savez('data.npz', inputs=x, targets=y)");
  }
  ASSIGN_OR_RETURN(const TypedDataset data, read_arrays_dataset(options, {.data = path}));
  JobDraft draft;
  draft.format = "arrays";
  draft.sources = {{"path", path}};
  describe(data, "arrays", draft);
  if (has("x_test") || has("test_x") || has("X_test") || has("test_images")) {
    draft.notes.emplace_back(
        "The arrays of a test set are not used; to use them, name them test_inputs and "
        "test_targets.");
  }
  draft.fields = {{"inputs", yaml_text(options.inputs)},
                  {"targets", yaml_text(options.targets), draft.target_says},
                  {"target_kind", kind_of(data.schema)}};
  return draft;
}

Result<JobDraft> draft_npy(const fs::path& path) {
  std::error_code ec;
  const bool is_folder = fs::is_directory(path, ec);
  const fs::path folder = is_folder ? path : path.parent_path();
  const auto file_of = [&](std::string_view name) { return folder / (std::string(name) + ".npy"); };
  fs::path inputs, targets;
  if (is_folder) {
    for (const Pair& pair : kPairs) {
      if (!fs::exists(file_of(pair.inputs), ec) || !fs::exists(file_of(pair.targets), ec)) continue;
      inputs = file_of(pair.inputs);
      targets = file_of(pair.targets);
      break;
    }
  } else {
    for (const bool of_inputs : {true, false}) {
      for (const std::string& name : partners_of(path.stem().string(), of_inputs)) {
        if (!inputs.empty() || !fs::exists(file_of(name), ec)) continue;
        inputs = of_inputs ? path : file_of(name);
        targets = of_inputs ? file_of(name) : path;
      }
    }
  }
  if (inputs.empty()) {
    return unsupported(
        path.string() +
        (is_folder
             ? " has NPY files, and none of them has a name of inputs or targets (x.npy "
               "and y.npy, inputs.npy and targets.npy)."
             : " is one array; training needs inputs and targets. Put the targets into a file next "
               "to it (x.npy and y.npy, inputs.npy and targets.npy), or both into one file: "
               "numpy.savez('data.npz', inputs=x, targets=y)"));
  }
  ArrayPaths paths;
  paths.inputs = inputs;
  paths.targets = targets;
  ASSIGN_OR_RETURN(const TypedDataset data, read_arrays_dataset({}, paths));
  JobDraft draft;
  draft.sources = {{"inputs", inputs}, {"targets", targets}};
  describe(data, "arrays", draft);
  draft.format = "arrays";
  draft.fields = {{"target_kind", kind_of(data.schema), draft.target_says}};
  return draft;
}

Result<JobDraft> draft_libsvm(const fs::path& path) {
  ASSIGN_OR_RETURN(const TypedDataset data, read_libsvm_dataset(path, {}));
  JobDraft draft;
  draft.format = "libsvm";
  draft.sources = {{"path", path}};
  describe(data, "sparse rows (LIBSVM)", draft);
  return draft;
}

}  // namespace trainyard::init
