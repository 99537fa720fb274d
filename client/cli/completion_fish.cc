// fish's completion script: one line for each command, option and kind of argument.
#include "client/cli/completion_table.h"

namespace trainyard::cli {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string line(const std::string& condition, const std::string& what) {
  return "complete -c trainyard" + (condition.empty() ? "" : " -n " + quoted(condition)) + what +
         "\n";
}

/// Returns the arguments of `complete` for an option's value; only files need -F.
std::string values(const OptionRow& row) {
  using With = Completion::With;
  const Completion completion = completion_of(row);
  switch (completion.with) {
    case With::kNothing:
      return "";
    case With::kWords:
      return " -a " + quoted(spaced(completion.words));
    case With::kFiles:
      return " -F";
    case With::kFolders:
      return " -a '(__fish_complete_directories)'";
    default:
      return " -a " + quoted("(__trainyard_names " + listing_of(completion.with) + ")");
  }
}

std::string option_line(const std::string& condition, const OptionRow& row) {
  std::string what;
  for (const std::string& name : row.names) {
    what += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!row.value.empty()) {  // -x: completes only the listed words, not files
    what += (completion_of(row).with == Completion::With::kFiles ? " -r" : " -x") + values(row);
  }
  return line(condition, what + " -d " + quoted(row.help));
}

}  // namespace

std::string fish_completion() {
  std::string out = R"(# fish completion of trainyard:  trainyard completion fish | source
function __trainyard_names  # prints names that the server knows
    set -l words (commandline -opc)
    $words[1] $argv -o name 2>/dev/null
end
function __trainyard_is  # whether the command is this one
    set -l words (commandline -opc)
    set -l last (math 1 + (count $argv))
    test (count $words) -ge $last; and test "$words[2..$last]" = "$argv"
end
function __trainyard_after  # whether the words are these and no more
    set -l words (commandline -opc)
    set -l after
    test (count $words) -gt 1; and set after $words[2..-1]
    test "$after" = "$argv"
end
complete -c trainyard -e
complete -c trainyard -f
)";
  for (const FirstWord& first : first_words()) {
    for (const char* before : {"", " help"}) {
      out += line(std::string("__trainyard_after") + before,
                  " -a " + first.word + " -d " + quoted(first.summary));
    }
    for (const std::string& verb : first.verbs) {
      out += line("__trainyard_after " + first.word,
                  " -a " + verb + " -d " + quoted(find_command(first.word + " " + verb)->summary));
    }
  }
  for (const OptionRow& row : rows_of(commands().front()).global) out += option_line("", row);
  for (const Command& c : commands()) {
    const std::string condition = "__trainyard_is " + c.name;
    for (const OptionRow& row : rows_of(c).own) {
      if (!row.positional) {
        out += option_line(condition, row);
      } else if (const std::string with = values(row); !with.empty()) {
        out += line(condition, with);
      }
    }
  }
  return out;
}

}  // namespace trainyard::cli
