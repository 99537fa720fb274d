#include "client/cli/upload_flags.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "client/lib/spec_file.h"
#include "proto/spec/message.h"
#include "src/base/join.h"
#include "src/base/text.h"
#include "trainyard/v1/spec_options.pb.h"

namespace trainyard::cli {
namespace {

using spec::DatasetFormat;
using spec::Value;
using Field = google::protobuf::FieldDescriptor;
using Names = std::vector<std::string>;

std::string dashed(const std::string& name) {
  std::string flag = "--" + name;
  std::ranges::replace(flag, '_', '-');
  return flag;
}

bool takes_no_value(const Field& field) { return field.cpp_type() == Field::CPPTYPE_BOOL; }
bool is_text_list(const Field& field) {
  return field.is_repeated() && field.cpp_type() == Field::CPPTYPE_STRING;
}

/// Returns the values of an enum field as specs write them; empty for other fields.
Names values_of(const Field& field) {
  return field.enum_type() == nullptr ? Names() : spec::enum_names(*field.enum_type());
}

std::string placeholder(const Field& field) {
  switch (field.cpp_type()) {
    case Field::CPPTYPE_STRING:
      return "TEXT";
    case Field::CPPTYPE_ENUM:
      return "KIND";
    default:
      return field.is_repeated() ? "N,N,..." : "N";
  }
}

/// Finds or adds the flag of a field, and sets its placeholder and help from the field's option
/// `flag`.
UploadFlag& add_flag(const Field& field, std::vector<UploadFlag>& flags) {
  const v1::Flag& about = field.options().GetExtension(v1::flag);
  const std::string name = dashed(about.name().empty() ? field.name() : about.name());
  auto flag = std::ranges::find(flags, name, &UploadFlag::name);
  if (flag == flags.end()) {
    flag = flags.insert(flags.end(), UploadFlag());
    flag->name = name;
  }
  if (flag->value.empty()) flag->value = about.value();
  if (flag->help.empty()) flag->help = about.help();
  return *flag;
}

void add_files(const spec::DatasetFormat& format, const google::protobuf::RepeatedField<int>& roles,
               std::vector<UploadFlag>& flags) {
  for (const int role : roles) {
    const std::string file = spec::file_field(static_cast<v1::DatasetSource::Role>(role));
    UploadFlag& flag = add_flag(*v1::DatasetFile::descriptor()->FindFieldByName(file), flags);
    flag.file_of = &format;
    flag.file = file;
  }
}

/// Returns the flags that name data by a path: "--csv", "--jsonl", ...
Names path_flags(const std::vector<UploadFlag>& flags) {
  Names names;
  for (const UploadFlag& flag : flags) {
    if (flag.path_of != nullptr) names.push_back(flag.name);
  }
  return names;
}

spec::Value scalar(std::string text, bool quoted) {
  spec::Value value;
  value.kind = spec::Value::Kind::kScalar;
  value.text = std::move(text);
  value.quoted = quoted;
  return value;
}

/// Returns the flag's value as a spec file would contain it.
spec::Value value_of(const UploadFlag& flag, const Field& field) {
  if (takes_no_value(field)) {
    return scalar(flag.name.starts_with("--no-") ? "false" : "true", /*quoted=*/false);
  }
  spec::Value list;
  list.kind = spec::Value::Kind::kSequence;
  if (is_text_list(field)) {
    for (const std::string& text : flag.texts) list.items.push_back(scalar(text, /*quoted=*/true));
    return list;
  }
  std::string text = flag.text.value_or("");
  if (field.enum_type() != nullptr) {  // for example --tokenizer BPE
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  }
  if (field.is_repeated()) {  // for example 1,8,8
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      list.items.push_back(scalar(text.substr(begin, end - begin), /*quoted=*/false));
      begin = end + 1;
    }
    return list;
  }
  if (!field.options().GetExtension(v1::one_character).empty() && text == "\\t") text = "\t";
  return scalar(std::move(text), field.cpp_type() == Field::CPPTYPE_STRING);
}

/// Builds the tree of a spec file from the given options.
class Tree {
 public:
  explicit Tree(const UploadOptions& o) : o_(o) {
    root_.kind = options_.kind = spec::Value::Kind::kMap;
  }

  Result<v1::DatasetFile> read() {
    if (Status s = choose(); !s.ok()) return std::move(s).error();
    if (format_ == nullptr) return nothing_to_upload();
    if (o_.on_server && !at_path_) {
      return usage_error("--on-server: expected with " + joined(path_flags(o_.flags)));
    }
    if (!o_.name.empty()) add("name", "--name", o_.name);
    if (!o_.test.empty()) add(o_.on_server ? "server_test_path" : "test_path", "--test", o_.test);
    for (const UploadFlag& flag : o_.flags) {
      if (Status s = take(flag); !s.ok()) return std::move(s).error();
    }
    if (at_path_ || !options_.entries.empty()) {
      root_.entries.push_back({format_->name(), {}, std::move(options_)});
    }
    std::vector<spec::Problem> problems;
    v1::DatasetFile file;
    spec::read_message(root_, "", file, problems);
    if (problems.empty()) spec::check_dataset_file(file, "", nullptr, problems);
    if (!problems.empty()) return to_error(problems);
    return file;
  }

 private:
  /// Chooses the format: the one whose path is given, or else the first one that has a file given.
  Status choose() {
    const UploadFlag* path = nullptr;
    for (const UploadFlag& flag : o_.flags) {
      if (!flag.is_given()) continue;
      if (flag.path_of != nullptr && path != nullptr) {
        return usage_error(path->name + " and " + flag.name + ": expected only one of " +
                           joined(path_flags(o_.flags)));
      }
      if (flag.path_of != nullptr) path = &flag;
      if (format_ == nullptr) format_ = flag.file_of;
    }
    at_path_ = path != nullptr;
    if (at_path_) format_ = path->path_of;
    return {};
  }

  Status take(const UploadFlag& flag) {
    const Field* field = flag.field_of(*format_);
    const bool is_field = field != nullptr && (at_path_ || flag.file_of == nullptr);
    if (is_field) flags_[format_->name() + "." + field->name()] = flag.name;
    if (flag.file_of != nullptr) flags_[flag.file] = flag.name;
    if (!flag.is_given()) return {};
    if (is_field) {
      options_.entries.push_back({field->name(), {}, value_of(flag, *field)});
    } else if (flag.path_of != nullptr) {
      add(o_.on_server ? "server_path" : "path", flag.name, *flag.text);
    } else if (flag.file_of != nullptr) {
      add(flag.file, flag.name, *flag.text);
    } else {
      Names others;
      for (const auto& [format, unused] : flag.fields) others.push_back(format->name());
      return usage_error(flag.name + ": " + format_->name() + " has no such option, only " +
                         joined(others, " and ") + (others.size() == 1 ? " has" : " have"));
    }
    return {};
  }

  void add(const std::string& field, const std::string& flag, const std::string& text) {
    flags_[field] = flag;
    root_.entries.push_back({field, {}, scalar(text, /*quoted=*/true)});
  }

  Error to_error(const std::vector<spec::Problem>& problems) const {
    Error error = make_error(ErrorCode::kInvalidArgument, problems.front().reason, "");
    for (const spec::Problem& problem : problems) {
      const auto flag = flags_.find(problem.field.substr(0, problem.field.find('[')));
      error.violations.push_back({flag != flags_.end()    ? flag->second
                                  : problem.field.empty() ? "the dataset"
                                                          : problem.field,
                                  problem.description});
    }
    const FieldViolation& first = error.violations.front();
    error.message = problems.size() == 1
                        ? first.field + ": " + first.description
                        : "the options have " + std::to_string(problems.size()) + " problems";
    return error;
  }

  const UploadOptions& o_;
  const spec::DatasetFormat* format_ = nullptr;
  bool at_path_ = false;  // true: the data is at a path; false: in files that are named one by one
  spec::Value root_, options_;
  std::map<std::string, std::string> flags_;  // by field: "csv.image" to "--image"
};

std::string help_of(const UploadFlag& flag) {
  if (flag.is_data()) return flag.help;
  Names formats;
  for (const auto& [format, field] : flag.fields) formats.push_back(format->name());
  const Names values = values_of(*flag.fields.front().second);
  return flag.help + (values.empty() ? "" : ": " + joined(values)) + " [" + joined(formats, ", ") +
         "]";
}

void add_option(OptionSet& options, UploadFlag& flag) {
  if (flag.is_data()) {
    options.text(flag.name, flag.value.empty() ? "PATH" : flag.value, flag.text, flag.help);
    return;
  }
  const Field& field = *flag.fields.front().second;
  const std::string value = flag.value.empty() ? placeholder(field) : flag.value;
  if (takes_no_value(field)) {
    options.flag(flag.name, flag.on, help_of(flag));
  } else if (is_text_list(field)) {
    options.texts(flag.name, value, flag.texts, help_of(flag));
  } else {
    options.text(flag.name, value, flag.text, help_of(flag), values_of(field));
  }
}

}  // namespace

const Field* UploadFlag::field_of(const spec::DatasetFormat& format) const {
  const auto found =
      std::ranges::find_if(fields, [&](const auto& of) { return of.first->field == format.field; });
  return found == fields.end() ? nullptr : found->second;
}

std::vector<UploadFlag> upload_flags() {
  std::vector<UploadFlag> flags;
  for (const spec::DatasetFormat& format : spec::dataset_formats()) {
    if (format.at_path() != nullptr) add_flag(*format.field, flags).path_of = &format;
    for (const auto& sources : format.about.sources()) {
      if (sources.named().empty()) continue;
      add_files(format, sources.train(), flags);
      add_files(format, sources.test(), flags);
    }
  }
  for (const spec::DatasetFormat& format : spec::dataset_formats()) {
    const auto& type = *format.field->message_type();
    for (int i = 0; i < type.field_count(); ++i) {
      add_flag(*type.field(i), flags).fields.emplace_back(&format, type.field(i));
    }
  }
  return flags;
}

Error nothing_to_upload() {
  Names ways;
  for (const UploadFlag& flag : upload_flags()) {
    if (flag.is_data()) ways.push_back(flag.name);
  }
  return make_error(ErrorCode::kInvalidArgument, "FIELD_REQUIRED",
                    "nothing to upload: expected one of " + joined(ways) +
                        ", or a spec file with a dataset path");
}

Result<v1::DatasetFile> dataset_of_flags(const UploadOptions& o) { return Tree(o).read(); }

void add_upload_options(OptionSet& options, UploadOptions& o) {
  o.flags = upload_flags();
  options.positional("SPEC", o.file, "a spec file whose dataset is uploaded", false);
  options.text("--name", "NAME", o.name, "the dataset's name; chosen by the server if left out");
  options.text("--test", "PATH", o.test, "rows, images or text of a test set");
  options.flag("--on-server", o.on_server,
               "the paths are on the server, in folders that its operator allows");
  options.texts("--set", "PATH=VALUE", o.sets, "change a field of the spec file");
  options.group("Without a spec file, the data is one of");
  for (UploadFlag& flag : o.flags) {
    if (flag.is_data()) add_option(options, flag);
  }
  options.group("How the data is read [formats with the option]");
  for (UploadFlag& flag : o.flags) {
    if (!flag.is_data()) add_option(options, flag);
  }
}

}  // namespace trainyard::cli
