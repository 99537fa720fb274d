#include "client/lib/spec_file.h"

#include "client/lib/spec_message.h"
#include "src/base/text.h"

namespace trainyard::client {
namespace {

constexpr const char* kRequired = "FIELD_REQUIRED";

/// Arrays, each a NPY file.
bool is_npy(const v1::DatasetFile& file) {
  return !file.inputs().empty() || !file.targets().empty() || !file.test_inputs().empty() ||
         !file.test_targets().empty();
}
/// Formats whose data is at `path`.
std::vector<const char*> path_formats(const v1::DatasetFile& file) {
  std::vector<const char*> names;
  if (file.has_csv()) names.push_back("csv");
  if (file.has_text()) names.push_back("text");
  if (file.has_images()) names.push_back("images");
  if (file.has_cifar()) names.push_back("cifar");
  if (file.has_jsonl()) names.push_back("jsonl");
  if (file.has_text_files()) names.push_back("text_files");
  if (file.has_arrays() && !is_npy(file)) names.push_back("arrays");
  return names;
}
bool on_server(const v1::DatasetFile& file) {
  return !file.server_path().empty() || !file.server_test_path().empty();
}
bool has_path(const v1::DatasetFile& file) {
  return !file.path().empty() || !file.test_path().empty() || !path_formats(file).empty() ||
         on_server(file);
}
/// Where the rows, text or images are: here, or with the server.
bool names_data(const v1::DatasetFile& file) {
  return !file.path().empty() || !file.server_path().empty();
}
bool is_idx(const v1::DatasetFile& file) {
  return !file.train_images().empty() || !file.train_labels().empty() ||
         !file.test_images().empty() || !file.test_labels().empty();
}

template <typename Layers>
void check_layers(const Layers& layers, const std::string& list, const SpecDocument& document,
                  std::vector<SpecProblem>& problems) {
  for (int i = 0; i < layers.size(); ++i) {
    if (layers[i].op_case() != v1::Layer::OP_NOT_SET) continue;
    const std::string path = list + "[" + std::to_string(i) + "]";
    const SpecPosition at = document.locate(path);
    bool told = false;  // an unknown field in the layer says it better
    for (const SpecProblem& problem : problems) told |= problem.field.starts_with(path);
    if (!told)
      problems.push_back({at, kRequired, path, "names no operation such as conv, gemm or relu"});
  }
}

// A file's network is the whole model: there is nothing to choose beside it.
void check_onnx(const v1::ModelSpec& model, const SpecDocument& document,
                std::vector<SpecProblem>& problems) {
  if (model.onnx().empty()) return;
  const char* rival = model.preset_case() != v1::ModelSpec::PRESET_NOT_SET ? "a preset"
                      : model.layers_size() > 0                            ? "layers"
                      : model.blocks_size() > 0                            ? "blocks"
                                                                           : nullptr;
  if (rival == nullptr) return;
  problems.push_back({document.locate("model"), "FIELD_CONFLICT", "model",
                      std::string("has onnx and ") + rival + ", expected one of them"});
}

void check_required(const v1::JobFile& file, const SpecDocument& document,
                    std::vector<SpecProblem>& problems) {
  const auto require = [&](bool present, const char* name, const char* example) {
    if (present) return;
    problems.push_back({document.root().at, kRequired, name,
                        std::string("required and not there, for example ") + example});
  };
  require(file.has_dataset() || document.root().find("dataset"), "dataset", "'dataset: digits'");
  require(file.has_model() || document.root().find("model"), "model", "'model: {lenet5: {}}'");
  require(file.has_recipe() || document.root().find("recipe"), "recipe",
          "'recipe: {epochs: 5, optimizer: {learning_rate: 0.1}}'");
}

Result<SpecFile> finish_spec_file(SpecDocument document, const std::filesystem::path& folder,
                                  std::span<const std::string> sets) {
  SpecFile spec;
  spec.folder = folder;
  for (const std::string& assignment : sets) {
    if (Status set = document.set(assignment); !set.ok()) return std::move(set).error();
  }
  std::vector<SpecProblem> problems;
  read_spec_message(document.root(), "", spec.file, problems);
  check_required(spec.file, document, problems);
  const v1::ModelSpec& model = spec.file.model();
  check_onnx(model, document, problems);
  check_layers(model.layers(), "model.layers", document, problems);
  for (int i = 0; i < model.blocks_size(); ++i) {
    check_layers(model.blocks(i).layers(), "model.blocks[" + std::to_string(i) + "].layers",
                 document, problems);
  }
  if (spec.file.has_dataset())
    check_dataset_file(spec.file.dataset(), "dataset", &document, problems);
  if (!problems.empty()) return document.to_error(problems);
  spec.document = std::move(document);
  return spec;
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path == "-" ? std::filesystem::path() : path.parent_path();
}

}  // namespace

v1::JobSpec SpecFile::job_spec() const {
  v1::JobSpec spec;
  if (!has_data()) spec.mutable_dataset()->set_name(file.dataset().name());
  *spec.mutable_model() = file.model();
  *spec.mutable_recipe() = file.recipe();
  if (file.has_resources()) *spec.mutable_resources() = file.resources();
  spec.set_priority(file.priority());
  *spec.mutable_labels() = file.labels();
  return spec;
}

bool SpecFile::has_data() const {
  return has_path(file.dataset()) || is_idx(file.dataset()) || is_npy(file.dataset());
}

bool SpecFile::has_weights() const {
  const v1::InitialWeights& weights = file.recipe().initial_weights();
  return !weights.path().empty() && weights.job().empty() && weights.model().empty();
}

std::filesystem::path SpecFile::weights_path() const {
  if (!imported_weights.empty()) return imported_weights;
  return folder / file.recipe().initial_weights().path();
}

Error SpecFile::with_positions(Error error) const {
  std::string first;
  for (FieldViolation& violation : error.violations) {
    std::string field = violation.field;
    if (field.starts_with("spec.")) field.erase(0, 5);
    if (field == "job_id") field = "name";
    const std::string position = document.describe(document.locate(field));
    if (first.empty()) first = position;
    violation.field = position + ": " + field;
  }
  if (error.violations.size() == 1) {
    // The server's sentence stays: it may say more than its field, such as the name of a layer.
    if (error.message.starts_with("spec.")) error.message.erase(0, 5);
    error.message = first + ": " + error.message;
  } else if (error.violations.size() > 1) {
    error.message = document.describe({0, 0, 0}) + " has " +
                    std::to_string(error.violations.size()) + " problems";
  }
  return error;
}

void check_dataset_file(const v1::DatasetFile& file, const std::string& prefix,
                        const SpecDocument* document, std::vector<SpecProblem>& problems) {
  const auto add = [&](const char* reason, const std::string& name, std::string description) {
    const std::string field = prefix.empty() ? name : name.empty() ? prefix : prefix + "." + name;
    problems.push_back({document ? document->locate(field) : SpecPosition{}, reason, field,
                        std::move(description)});
  };
  const std::vector<const char*> formats = path_formats(file);
  const bool idx = is_idx(file);
  const bool npy = is_npy(file);
  if (has_path(file) + idx + npy > 1) {
    return add("FIELD_CONFLICT", "",
               "has fields of several kinds: path and its formats (csv, jsonl, text, text_files, "
               "images, cifar, arrays), IDX files (train_images) or NPY files (inputs); expected "
               "one kind");
  }
  if ((has_path(file) || idx || npy) && file.name().find('@') != std::string::npos) {
    return add("NAME_MALFORMED", "name",
               quoted_value(file.name()) +
                   ": new content gets its version from the server, expected a name without @");
  }
  if (formats.size() > 1) {
    return add("FIELD_CONFLICT", "",
               std::string("has ") + formats[0] + " and " + formats[1] + ", expected one of them");
  }
  if (on_server(file) && (!file.path().empty() || !file.test_path().empty())) {
    return add("FIELD_CONFLICT", file.server_path().empty() ? "server_test_path" : "server_path",
               "there are files of this machine too (path, test_path), expected one kind");
  }
  if (file.has_text()) {
    if (!names_data(file)) add(kRequired, "path", "required with text: the file that holds it");
    return;
  }
  if (file.has_jsonl()) {
    if (!names_data(file)) {
      add(kRequired, "path", "required with jsonl: the file that holds the rows");
    }
    if (file.jsonl().target().empty()) add(kRequired, "jsonl.target", "the member to learn");
    return;
  }
  if (file.has_images() || file.has_cifar() || file.has_text_files()) {
    if (!names_data(file)) {
      add(kRequired, "path",
          std::string("required with ") + formats[0] + ": the folder or archive that holds them");
    }
    if (file.has_cifar() && !(file.test_path().empty() && file.server_test_path().empty())) {
      add("FIELD_UNUSED", "test_path", "has no effect with cifar: its test set is beside the rest");
    }
    return;
  }
  if (npy) {
    if (file.inputs().empty()) add(kRequired, "inputs", "required for NPY files");
    if (file.targets().empty()) add(kRequired, "targets", "required for NPY files");
    if (file.test_inputs().empty() != file.test_targets().empty()) {
      const char* missing = file.test_inputs().empty() ? "test_inputs" : "test_targets";
      add(kRequired, missing, "required: a test set is inputs and targets");
    }
    return;
  }
  if (file.has_arrays()) {
    if (!names_data(file)) {
      add(kRequired, "path",
          "required with arrays: a NPZ or safetensors file; or name NPY files by inputs and "
          "targets");
    }
    return;
  }
  if (has_path(file)) {
    if (!names_data(file))
      add(kRequired, "path", "required with csv: the file that holds the rows");
    if (file.csv().target().empty()) {
      add(kRequired, "csv.target",
          "required with path: the column to learn (or jsonl: {target: ...} for JSON lines, text: "
          "{} for one text, text_files: {} or images: {} for a folder or archive, cifar: {}, "
          "arrays: {} for NPZ and safetensors)");
    }
    if (file.csv().delimiter().size() > 1) {
      add("FIELD_OUT_OF_RANGE", "csv.delimiter",
          quoted_value(file.csv().delimiter()) + ", expected one character such as \",\" or \";\"");
    }
    return;
  }
  if (idx) {
    if (file.train_images().empty()) add(kRequired, "train_images", "required for IDX data");
    if (file.train_labels().empty()) add(kRequired, "train_labels", "required for IDX data");
    if (file.test_images().empty() != file.test_labels().empty()) {
      const char* missing = file.test_images().empty() ? "test_images" : "test_labels";
      add(kRequired, missing, "required: a test set is images and labels");
    }
    return;
  }
  if (file.name().empty()) {
    add(kRequired, "",
        "says nothing, expected a name, or path with csv, jsonl, text, text_files, images, cifar "
        "or arrays, or train_images and train_labels, or inputs and targets");
  }
}

Result<SpecFile> read_spec_file(const std::filesystem::path& path,
                                std::span<const std::string> sets) {
  ASSIGN_OR_RETURN(SpecDocument document, SpecDocument::read(path));
  return finish_spec_file(std::move(document), folder_of(path), sets);
}

Result<SpecFile> parse_spec_file(std::string_view text, std::string name,
                                 const std::filesystem::path& folder,
                                 std::span<const std::string> sets) {
  ASSIGN_OR_RETURN(SpecDocument document, SpecDocument::parse(text, std::move(name)));
  return finish_spec_file(std::move(document), folder, sets);
}

Result<std::pair<v1::DatasetFile, std::filesystem::path>> read_dataset_file(
    const std::filesystem::path& path, std::span<const std::string> sets) {
  ASSIGN_OR_RETURN(SpecDocument document, SpecDocument::read(path));
  for (const std::string& assignment : sets) {
    if (Status set = document.set(assignment); !set.ok()) return std::move(set).error();
  }
  std::vector<SpecProblem> problems;
  v1::DatasetFile dataset;
  std::string prefix;
  if (document.root().find("model") != nullptr || document.root().find("dataset") != nullptr) {
    v1::JobFile job;
    read_spec_message(document.root(), "", job, problems);
    dataset = job.dataset();
    prefix = "dataset";
  } else {
    read_spec_message(document.root(), "", dataset, problems);
  }
  check_dataset_file(dataset, prefix, &document, problems);
  if (!problems.empty()) return document.to_error(problems);
  return std::pair(std::move(dataset), folder_of(path));
}

}  // namespace trainyard::client
