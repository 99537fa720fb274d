// Checks which fields of a DatasetFile belong together. Both the checks and the messages are
// derived from the formats' descriptions (proto/spec/dataset_format.h).
#include <algorithm>
#include <functional>

#include "proto/spec/dataset_format.h"
#include "proto/spec/message.h"
#include "src/base/join.h"
#include "src/base/text.h"

namespace trainyard::spec {
namespace {

constexpr const char* kRequired = "FIELD_REQUIRED";
constexpr const char* kTokenizerField = "trainyard.v1.DocumentsFormat.tokenizer";

using Sources = v1::DatasetFormat::Sources;

/// Returns the names of all formats whose data is at `path`.
std::vector<std::string> path_format_names() {
  std::vector<std::string> names;
  for (const DatasetFormat& format : dataset_formats()) {
    if (format.at_path() != nullptr) names.push_back(format.name());
  }
  return names;
}
template <typename Visit>
void visit_named_sources(Visit visit) {
  for (const DatasetFormat& format : dataset_formats()) {
    for (const Sources& sources : format.about.sources()) {
      if (!sources.named().empty()) visit(sources);
    }
  }
}
std::vector<std::string> fields_of(const google::protobuf::RepeatedField<int>& roles) {
  std::vector<std::string> fields;
  for (const int role : roles) {
    fields.push_back(file_field(static_cast<v1::DatasetSource::Role>(role)));
  }
  return fields;
}

/// Returns hints for all formats but the first: "jsonl: {target: ...} for JSON lines, text: {} for
/// one text".
std::string other_formats() {
  std::vector<std::string> hints;
  std::string reads;
  for (const DatasetFormat& format : dataset_formats()) {
    if (format.at_path() == nullptr || &format == &dataset_formats().front()) continue;
    std::vector<std::string> fields;
    for (const RequiredField& required : required_fields(*format.field->message_type())) {
      fields.push_back(required.field->name() + ": ...");
    }
    const std::string hint = format.name() + ": {" + joined(fields, ", ") + "}";
    if (!reads.empty() && format.about.reads() == reads) {
      hints.back() += " or " + hint;
    } else {
      if (!reads.empty()) hints.back() += " for " + reads;
      hints.push_back(hint);
    }
    reads = format.about.reads();
  }
  if (!reads.empty()) hints.back() += " for " + reads;
  return joined(hints, ", ");
}

std::string several_kinds() {
  std::vector<std::string> kinds = {"path and its formats (" + joined(path_format_names(), ", ") +
                                    ")"};
  visit_named_sources([&](const Sources& sources) {
    kinds.push_back(sources.named() + " (" + fields_of(sources.train()).front() + ")");
  });
  return "mixes several kinds of fields: " + joined(kinds, " or ") + "; expected only one kind";
}

std::string says_nothing() {
  std::vector<std::string> kinds = {"a name",
                                    "or path with " + joined(path_format_names(), " or ")};
  visit_named_sources([&](const Sources& sources) {
    kinds.push_back("or " + joined(fields_of(sources.train()), " and "));
  });
  return "is empty, expected " + joined(kinds, ", ");
}

/// Adds a problem with its reason, field and description.
using Add = std::function<void(const char* reason, const std::string& field, std::string what)>;

void check_named(const v1::DatasetFile& file, const Sources& sources, const Add& add) {
  for (const std::string& field : fields_of(sources.train())) {
    if (text_at(file, field).empty()) add(kRequired, field, "required for " + sources.named());
  }
  const std::vector<std::string> test = fields_of(sources.test());
  const auto is_missing = [&](const std::string& field) { return text_at(file, field).empty(); };
  const auto missing = std::ranges::find_if(test, is_missing);
  if (missing == test.end() || std::ranges::all_of(test, is_missing)) return;
  std::vector<std::string> parts;
  for (const std::string& field : test) parts.push_back(field.substr(field.find('_') + 1));
  add(kRequired, *missing, "required: a test set consists of " + joined(parts, " and "));
}

void check_at_path(const v1::DatasetFile& file, const Add& add) {
  const DatasetFormat& format = format_of(file);
  if (file.path().empty() && file.server_path().empty()) {
    add(kRequired, "path", "required with " + format.name() + ": " + format.about.path());
  }
  const std::string test = !file.test_path().empty()          ? "test_path"
                           : !file.server_test_path().empty() ? "server_test_path"
                                                              : "";
  if (format.at_path()->test().empty() && !test.empty()) {
    add("FIELD_UNUSED", test,
        "has no effect with " + format.name() + ": its test set is stored with the training data");
  }
  const v1::DatasetSpec spec = dataset_spec(file);
  const google::protobuf::Message& options = spec.GetReflection()->GetMessage(spec, format.field);
  for (const auto& [field, says] : required_fields(*options.GetDescriptor())) {
    if (options.GetReflection()->HasField(options, field)) continue;
    if (field->full_name() == kTokenizerField && !tokenizer_path(file).empty()) continue;
    const bool first = &format == &dataset_formats().front();
    add(kRequired, format.name() + "." + field->name(),
        first ? "required with path: " + says + " (or " + other_formats() + ")" : says);
  }
}

}  // namespace

void check_dataset_file(const v1::DatasetFile& file, const std::string& prefix,
                        const Document* document, std::vector<Problem>& problems) {
  const Add add = [&](const char* reason, const std::string& name, std::string description) {
    const std::string field = prefix.empty() ? name : name.empty() ? prefix : prefix + "." + name;
    problems.push_back(
        {document ? document->locate(field) : Position{}, reason, field, std::move(description)});
  };
  const std::vector<const DatasetFormat*> formats = path_formats(file);
  const std::vector<const Sources*> named = named_sources(file);
  const bool on_server = !file.server_path().empty() || !file.server_test_path().empty();
  if (has_path(file) + named.size() > 1) return add("FIELD_CONFLICT", "", several_kinds());
  if (brings_data(file) && file.name().find('@') != std::string::npos) {
    return add("NAME_MALFORMED", "name",
               quoted_value(file.name()) +
                   ": new content gets its version from the server, expected a name without @");
  }
  if (formats.size() > 1) {
    return add(
        "FIELD_CONFLICT", "",
        "has " + formats[0]->name() + " and " + formats[1]->name() + ", expected only one of them");
  }
  if (on_server && (!file.path().empty() || !file.test_path().empty())) {
    return add("FIELD_CONFLICT", file.server_path().empty() ? "server_test_path" : "server_path",
               "combined with files on this machine (path, test_path), expected only one kind");
  }
  if (!named.empty()) return check_named(file, *named.front(), add);
  if (has_path(file)) return check_at_path(file, add);
  if (file.name().empty()) add(kRequired, "", says_nothing());
}

}  // namespace trainyard::spec
