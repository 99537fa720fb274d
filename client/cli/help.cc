// client/cli/help.cc: the texts of `trainyard help`, of groups of commands and of single commands.
#include "client/cli/help.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "client/cli/terminal.h"

namespace trainyard::cli {
namespace {

constexpr int kWidthMax = 100;  // longer lines are hard to read
constexpr int kHelpIndent = 2;

struct Group {
  std::string_view heading;
  // Names of commands, or first words that several commands share.
  std::vector<std::string_view> words;
};

const std::vector<Group>& groups() {
  static const std::vector<Group> all = {
      {"Data", {"init", "dataset"}},
      {"Jobs",
       {"plan", "submit", "list", "queue", "get", "watch", "wait", "logs", "explain", "cancel",
        "pause", "resume", "retry", "fork", "checkpoint", "prioritize", "delete"}},
      {"Many jobs as one", {"array"}},
      {"Metrics", {"plot", "metrics"}},
      {"Models and predictions", {"predict", "generate", "chat", "model"}},
      {"Training without a server", {"local"}},
      {"Devices and the server", {"device", "server", "health", "usage", "quota"}},
      {"People",
       {"login", "logout", "whoami", "context", "user", "project", "token", "share", "unshare"}},
      {"This program", {"tutorial", "completion", "man", "version"}},
  };
  return all;
}

std::string_view first_word(std::string_view name) { return name.substr(0, name.find(' ')); }

bool belongs(const Command& command, const Group& group) {
  return std::ranges::any_of(group.words, [&](std::string_view word) {
    return command.name == word || first_word(command.name) == word;
  });
}

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 1, ' ');
}

/// Returns lines of a term and its explanation, which is wrapped beside the term.
std::string terms(const std::vector<std::pair<std::string, std::string>>& rows, size_t column,
                  int width) {
  std::string out;
  const int indent = static_cast<int>(column);
  for (const auto& [term, text] : rows) {
    out += padded(term, column) +
           wrapped(text, width, indent, std::max(indent, display_width(term) + 1)) + "\n";
  }
  return out;
}

/// Joins the lines of each paragraph and wraps it to the width.
std::string reflowed(std::string_view text, int width) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find("\n\n"), text.size());
    std::string paragraph(text.substr(0, end));
    std::ranges::replace(paragraph, '\n', ' ');
    text.remove_prefix(std::min(text.size(), end + 2));
    out += wrapped(paragraph, width) + "\n" + (text.empty() ? "" : "\n");
  }
  return out;
}

std::string usage_line(const Command& command, const OptionSet& options) {
  std::string line = "trainyard " + command.name;
  for (const OptionRow& row : options.rows()) {
    if (!row.positional) continue;
    const std::string name = row.names[0] + (row.several ? "..." : "");
    line += row.required ? " " + name : " [" + name + "]";
  }
  return line + " [options]";
}

std::string option_lines(const OptionSet& options, size_t begin, size_t end, int width) {
  constexpr size_t kColumnMax = 32;
  size_t column = 0;
  std::vector<std::pair<std::string, std::string>> rows;
  for (size_t i = begin; i < end; ++i) {
    const OptionRow& row = options.rows()[i];
    std::string left(kHelpIndent, ' ');
    for (size_t n = 0; n < row.names.size(); ++n) left += (n > 0 ? ", " : "") + row.names[n];
    if (!row.value.empty()) left += " " + row.value;
    column = std::max(column, std::min(kColumnMax, left.size() + kHelpIndent));
    rows.emplace_back(left, row.help);
  }
  return terms(rows, column, width);
}

std::string command_rows(const std::vector<const Command*>& list, size_t column, int width,
                         const std::string& prefix = "") {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Command* c : list) {
    rows.emplace_back(std::string(kHelpIndent, ' ') + prefix + c->name, c->summary);
  }
  return terms(rows, column, width);
}

/// Returns a line that names the installed folder of the pages that texts call docs/; empty if it
/// is not known.
std::string docs_line() {
  std::error_code ec;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ec);
  const std::filesystem::path prefix = program.parent_path().parent_path();
  for (const auto& folder : {prefix / "share/doc/trainyard/docs", program.parent_path() / "docs"}) {
    if (std::filesystem::exists(folder / "job_spec.md", ec)) {
      return "Pages that texts call docs/... are in " + folder.string() + ".";
    }
  }
  return "";
}

}  // namespace

int help_width(const Terminal& out) { return std::min(kWidthMax, out.width()); }

std::string command_help(const Command& command, const OptionSet& options, int width) {
  std::string out = wrapped(command.summary, width) + "\n\nExamples:\n";
  for (const std::string& example : command.examples) out += "  " + example + "\n";
  out += "\nUsage: " + usage_line(command, options) + "\n";
  if (!command.details.empty()) out += "\n" + reflowed(command.details, width);
  const size_t own = options.rows().size() - kGlobalOptions;
  for (size_t begin = 0, end = 0; begin < own; begin = end) {
    const std::string& group = options.rows()[begin].group;
    while (end < own && options.rows()[end].group == group) ++end;
    out += "\n" + (group.empty() ? "Options" : group) + ":\n" +
           option_lines(options, begin, end, width);
  }
  std::string names;
  for (size_t i = own; i < options.rows().size(); ++i) {
    names += (names.empty() ? "" : ", ") + options.rows()[i].names[0];
  }
  return out + "\n" +
         wrapped("Every command also has " + names + ": 'trainyard help options' describes them.",
                 width) +
         "\n";
}

std::string global_options_help(int width) {
  OptionSet options;
  GlobalOptions global;
  add_global_options(options, global);
  return "Options of every command:\n" + option_lines(options, 0, options.rows().size(), width);
}

std::string group_help(const std::string& group, int width) {
  std::vector<const Command*> list;
  size_t column = 0;
  for (const Command& c : commands()) {
    if (!c.name.starts_with(group + " ")) continue;
    list.push_back(&c);
    column = std::max(column, c.name.size() + 2 * kHelpIndent);
  }
  const std::string program = "trainyard ";
  return "Commands:\n" + command_rows(list, column + program.size(), width, program) +
         "\n'trainyard " + group + " COMMAND --help' describes a command.\n";
}

std::string general_help(int width) {
  std::string out =
      "Trainyard trains neural networks that are described as data.\n\n"
      "Examples:\n"
      "  trainyard tutorial                     a first job in three minutes\n"
      "  trainyard init iris.csv                inspect your data, write a job file\n"
      "  trainyard plan iris.yaml               layers, memory and device\n"
      "  trainyard submit iris.yaml --watch     train and follow the progress\n"
      "  trainyard predict iris --csv new.csv   use the trained model\n"
      "  trainyard local run iris.yaml          train here, without a server\n";
  size_t column = 0;
  for (const Command& c : commands()) column = std::max(column, c.name.size() + 2 * kHelpIndent);
  std::vector<const Command*> others;
  for (const Command& c : commands()) {
    if (!std::ranges::any_of(groups(), [&](const Group& g) { return belongs(c, g); })) {
      others.push_back(&c);
    }
  }
  for (const Group& group : groups()) {
    std::vector<const Command*> list;
    for (const Command& c : commands()) {
      if (belongs(c, group)) list.push_back(&c);
    }
    if (list.empty()) continue;
    out += "\n" + std::string(group.heading) + ":\n" + command_rows(list, column, width);
  }
  if (!others.empty()) out += "\nOthers:\n" + command_rows(others, column, width);
  out += "\n" +
         wrapped(
             "'trainyard COMMAND --help' describes a command, 'trainyard help options' "
             "the options of every command. --server, TRAINYARD_SERVER or the "
             "configuration file name the server; without them, a daemon on this "
             "machine is used.",
             width) +
         "\n";
  const std::string docs = docs_line();
  return docs.empty() ? out : out + wrapped(docs, width) + "\n";
}

}  // namespace trainyard::cli
