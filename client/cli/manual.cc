// trainyard man: prints manual pages, generated from the list of commands as help and completion
// are.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "client/cli/completion_table.h"
#include "src/base/files.h"
#include "src/base/manual_page.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

using Word = ManualPage::Word;

/// Returns the name of a command's page: "trainyard-dataset-upload".
std::string page_name(const Command& command) {
  std::string name = "trainyard-" + command.name;
  std::ranges::replace(name, ' ', '-');
  return name;
}

void add_options(ManualPage& page, const std::vector<OptionRow>& rows) {
  for (const OptionRow& row : rows) {
    std::vector<Word> term;
    for (const std::string& name : row.names) {
      if (!term.empty()) term.push_back({", "});
      term.push_back({name, row.positional ? Word::kItalic : Word::kBold});
    }
    if (!row.value.empty()) term.insert(term.end(), {{" "}, {row.value, Word::kItalic}});
    page.item(term, row.help);
  }
}

ManualPage command_page(const Command& command) {
  ManualPage page(page_name(command), 1, command.summary);
  const std::vector<OptionRow> rows = rows_of(command).own;
  page.heading("SYNOPSIS");
  std::vector<Word> usage = {{"trainyard " + command.name, Word::kBold}};
  for (const OptionRow& row : rows) {
    if (!row.positional) continue;
    usage.insert(usage.end(), {{row.required ? " " : " ["}, {row.names[0], Word::kItalic}});
    if (!row.required) usage.push_back({"]"});
  }
  usage.insert(usage.end(), {{" ["}, {"options", Word::kItalic}, {"]"}});
  page.line(usage);
  if (!command.details.empty()) {
    page.heading("DESCRIPTION");
    page.paragraph(command.details);
  }
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    while (end < rows.size() && rows[end].group == rows[begin].group) ++end;
    std::string heading = rows[begin].group.empty() ? "OPTIONS" : rows[begin].group;
    std::ranges::transform(heading, heading.begin(),
                           [](unsigned char c) { return std::toupper(c); });
    page.heading(heading);
    add_options(page, {rows.begin() + static_cast<std::ptrdiff_t>(begin),
                       rows.begin() + static_cast<std::ptrdiff_t>(end)});
  }
  page.heading("EXAMPLES");
  page.code(command.examples);
  page.heading("SEE ALSO");
  page.line({{"trainyard", Word::kBold},
             {"(1) describes the options of every command, the variables and the exit codes."}});
  return page;
}

ManualPage main_page() {
  ManualPage page("trainyard", 1, "train neural networks that are described as data");
  page.heading("SYNOPSIS");
  page.line({{"trainyard", Word::kBold},
             {" "},
             {"command", Word::kItalic},
             {" ["},
             {"options", Word::kItalic},
             {"]"}});
  page.heading("DESCRIPTION");
  page.paragraph(
      "Trainyard trains neural networks that are described as data: a job file names the data, the "
      "model and how to train it. A daemon, trainyardd(8), keeps jobs and runs them; 'trainyard "
      "local run' trains without one.\n\nEach command has a page of its own, such as "
      "trainyard-submit(1).");
  page.heading("COMMANDS");
  for (const Command& c : commands()) page.item({{c.name, Word::kBold}}, c.summary);
  page.heading("OPTIONS OF EVERY COMMAND");
  add_options(page, rows_of(commands().front()).global);
  page.heading("EXIT STATUS");
  using namespace client;
  const std::vector<std::pair<ExitCode, std::string>> codes = {
      {kExitOk, "done; the job succeeded, for commands that wait for it"},
      {kExitFailed, "the job failed, or an error that no other code describes"},
      {kExitUsage, "wrong usage, or an argument or spec that was refused"},
      {kExitNotAllowed, "not authenticated, or not allowed"},
      {kExitNotFound, "there is no such job, dataset, model or file"},
      {kExitConflict, "the name is taken, or the job is not in the right state"},
      {kExitFull, "a quota is used up, or a disk is full"},
      {kExitUnavailable, "the server cannot be reached or is stopping; trying again is safe"},
      {kExitCancelled, "the job was cancelled, for commands that wait for it"},
      {kExitTimeout, "the time of --timeout has passed"},
      {kExitInterrupted, "interrupted by Ctrl-C"},
  };
  for (const auto& [code, meaning] : codes) {
    page.item({{std::to_string(code), Word::kBold}}, meaning);
  }
  page.heading("ENVIRONMENT");
  page.paragraph(
      "TRAINYARD_SERVER, TRAINYARD_CONTEXT, TRAINYARD_PROJECT, TRAINYARD_CONFIG, "
      "TRAINYARD_TOKEN_FILE, TRAINYARD_OUTPUT and TRAINYARD_NO_COLOR set the options of the same "
      "names, which take precedence over them. TRAINYARD_TOKEN is the token itself. "
      "NO_COLOR "
      "and FORCE_COLOR switch color off and on.");
  page.heading("SEE ALSO");
  page.line({{"trainyardd", Word::kBold},
             {"(8), "},
             {"trainyard-submit", Word::kBold},
             {"(1), "},
             {"trainyard-local-run", Word::kBold},
             {"(1)"}});
  return page;
}

Result<int> run_man(Session& session, const std::string& name, const std::string& folder) {
  if (!folder.empty()) {
    if (!name.empty()) return usage_error("--out writes all pages; it takes no COMMAND");
    if (Status s = user_files().create_directories(folder); !s.ok()) return std::move(s).error();
    const auto write = [&](const std::string& page, const ManualPage& text) {
      return replace_file(user_files(), std::filesystem::path(folder) / (page + ".1"),
                          text.source());
    };
    if (Status s = write("trainyard", main_page()); !s.ok()) return std::move(s).error();
    for (const Command& c : commands()) {
      if (Status s = write(page_name(c), command_page(c)); !s.ok()) return std::move(s).error();
    }
    return static_cast<int>(client::kExitOk);
  }
  if (name.empty()) {
    session.out().write(main_page().source());
    return static_cast<int>(client::kExitOk);
  }
  for (const Command& c : commands()) {
    if (name != c.name && name != page_name(c) && "trainyard-" + name != page_name(c)) continue;
    session.out().write(command_page(c).source());
    return static_cast<int>(client::kExitOk);
  }
  return usage_error("COMMAND: " + quoted_value(name) +
                     " is not known, expected a command such as submit or dataset-upload; "
                     "'trainyard help' lists them");
}

}  // namespace

Command man_command() {
  struct Options {
    std::string command, folder;
  };
  auto o = std::make_shared<Options>();
  return {"man",
          "Print a manual page, or write all of them into a folder",
          {"trainyard man submit | man -l -", "trainyard man dataset-upload > page.1",
           "trainyard man --out share/man/man1"},
          "Pages are written for man(1). Installations have them in share/man.",
          [o](OptionSet& options) {
            options.positional("COMMAND", o->command, "a command; without one, the program", false);
            options.text("--out", "FOLDER", o->folder, "write the pages of all commands there");
          },
          [o](Session& session) { return run_man(session, o->command, o->folder); }};
}

}  // namespace trainyard::cli
