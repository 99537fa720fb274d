// trainyard context list, show, use, set, remove: named servers in the configuration file.
#include <filesystem>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/confirm.h"
#include "client/cli/connection_view.h"
#include "client/cli/people_view.h"
#include "client/lib/contexts.h"
#include "src/base/files.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using client::Context;
using client::Contexts;

/// Reads the configuration, and finds the file that a change is written to.
struct Editor {
  Contexts contexts;
  fs::path file;

  static Result<Editor> open(const Session& session) {
    Editor editor;
    ASSIGN_OR_RETURN(editor.contexts, client::read_contexts(session.connection(), session.env()));
    ASSIGN_OR_RETURN(editor.file, client::own_config_file(session.connection(), session.env()));
    return editor;
  }
  /// Returns CONFIG_INVALID with the existing names if there is no such context.
  Result<Context*> get(const std::string& name) {
    const client::ConnectionFlags flags = {.context = name};
    const auto found = client::choose_context(contexts, flags, [](const char*) { return ""; });
    if (!found.ok()) return found.error();
    return contexts.find(name);
  }
  Status save(Session& session) const {
    bool kept_old = false;
    if (Status written = client::write_contexts(contexts, file, &kept_old); !written.ok()) {
      return written;
    }
    if (kept_old) {
      session.err().line("note: the comments of the configuration are in " + file.string() +
                         ".old");
    }
    return {};
  }
};

nlohmann::ordered_json json_of_context(const Context& context, bool in_use) {
  nlohmann::ordered_json json = {{"name", context.name}, {"in_use", in_use}};
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) json[key] = value;
  };
  add("server", context.server);
  add("ca_file", context.ca_file);
  add("token_file", context.token_file);
  add("project", context.project);
  if (context.plaintext) json["plaintext"] = true;
  return json;
}

Result<int> run_context_list(Session& session) {
  ASSIGN_OR_RETURN(const Contexts contexts,
                   client::read_contexts(session.connection(), session.env()));
  const std::string variable = session.env()("TRAINYARD_CONTEXT");
  const std::string in_use = variable.empty() ? contexts.current : variable;
  nlohmann::ordered_json json = {{"contexts", nlohmann::ordered_json::array()}};
  std::vector<std::string> names;
  Table table({{"IN USE"}, {"NAME"}, {"SERVER"}, {"PROJECT"}, {"TOKEN"}});
  for (const Context& context : contexts.list) {
    names.push_back(context.name);
    json["contexts"].push_back(json_of_context(context, context.name == in_use));
    table.add({context.name == in_use ? "*" : "", context.name,
               context.server.empty() ? "this machine's" : context.server,
               context.project.empty() ? std::string(client::kDefaultProject) : context.project,
               context.token_file.empty() ? "" : "yes"});
  }
  const bool empty = names.empty();
  show_json(
      session, json, [&] { return empty ? std::string() : table.render(session.out()); }, names);
  if (empty) session.hint("No contexts yet. 'trainyard login --server ADDRESS' makes one.");
  return static_cast<int>(client::kExitOk);
}

Result<int> run_context_show(Session& session, const std::string& name) {
  client::ConnectionFlags flags = session.connection();
  if (!name.empty()) flags.context = name;
  ASSIGN_OR_RETURN(const client::Connection connection,
                   client::resolve_connection(flags, session.env()));
  show_json(session, connection_json(connection),
            [&] { return render_fields(connection_fields(connection), session.out().colour()); },
            {connection.context});
  return static_cast<int>(client::kExitOk);
}

Result<int> run_context_use(Session& session, const std::string& name) {
  ASSIGN_OR_RETURN(Editor editor, Editor::open(session));
  ASSIGN_OR_RETURN(const Context* context, editor.get(name));
  editor.contexts.current = context->name;
  if (Status saved = editor.save(session); !saved.ok()) return std::move(saved).error();
  session.err().line("context " + name + " is in use");
  for (const char* variable : {"TRAINYARD_CONTEXT", "TRAINYARD_SERVER"}) {
    if (session.env()(variable).empty()) continue;
    session.err().line("note: " + std::string(variable) + " is set and goes before it");
  }
  return static_cast<int>(client::kExitOk);
}

Result<int> run_context_set(Session& session, const std::string& name) {
  const client::ConnectionFlags& flags = session.connection();
  if (Status checked = client::check_context_name(name); !checked.ok()) {
    return std::move(checked).error();
  }
  ASSIGN_OR_RETURN(Editor editor, Editor::open(session));
  const bool is_new = editor.contexts.find(name) == nullptr;
  Context& context = editor.contexts.get(name);
  const bool moves = !flags.server.empty() && flags.server != context.server;
  const bool loses_token = moves && !context.token_file.empty() && flags.token_file.empty();
  if (moves) context = Context{.name = name, .server = flags.server, .project = context.project};
  std::error_code ignored;
  if (!flags.ca_file.empty()) context.ca_file = fs::absolute(flags.ca_file, ignored);
  if (!flags.token_file.empty()) context.token_file = fs::absolute(flags.token_file, ignored);
  if (!flags.project.empty()) context.project = flags.project;
  if (flags.plaintext) context.plaintext = true;
  if (flags.server.empty() && flags.ca_file.empty() && flags.token_file.empty() &&
      flags.project.empty() && !flags.plaintext) {
    return usage_error(
        "expected what to set: --server, --ca-file, --project, --token-file or --plaintext");
  }
  ASSIGN_OR_RETURN(const client::Connection checked,
                   client::resolve_in_context(&context, {}, [](const char*) { return ""; }));
  if (!context.server.empty()) context.server = checked.server;
  context.project = flags.project.empty() ? context.project : checked.project;
  if (Status saved = editor.save(session); !saved.ok()) return std::move(saved).error();
  session.err().line("context " + name + (is_new ? " is made" : " is changed") +
                     (editor.contexts.current == name
                          ? std::string()
                          : "; 'trainyard context use " + name + "' uses it"));
  if (loses_token) {
    session.err().line("note: its token belonged to the other server; 'trainyard login --context " +
                       name + "' stores one for this server");
  }
  return static_cast<int>(client::kExitOk);
}

Result<int> run_context_remove(Session& session, const std::string& name,
                               const ConfirmOptions& sure) {
  ASSIGN_OR_RETURN(Editor editor, Editor::open(session));
  ASSIGN_OR_RETURN(const Context* context, editor.get(name));
  const std::string token_file = context->token_file;
  const bool has_token = token_file == client::token_file_of(editor.file, name);
  const Deed deed = {"remove", "removing", "removed"};
  if (Status confirmed = confirm_delete(session, sure, "context", {name},
                                        has_token ? " with its token" : "", deed);
      !confirmed.ok()) {
    return std::move(confirmed).error();
  }
  if (has_token) {
    if (Status removed = user_files().remove_all(token_file); !removed.ok()) {
      return std::move(removed).error();
    }
  }
  std::erase_if(editor.contexts.list, [&](const Context& c) { return c.name == name; });
  const bool was_in_use = editor.contexts.current == name;
  if (was_in_use) editor.contexts.current.clear();
  if (Status saved = editor.save(session); !saved.ok()) return std::move(saved).error();
  session.err().line("removed context " + name + (has_token ? " with its token" : "") +
                     (was_in_use ? "; no context is in use now" : ""));
  return static_cast<int>(client::kExitOk);
}

Command context_set_command() {
  auto name = std::make_shared<std::string>();
  return {
      "context set",
      "Make or change a context: server, CA file, project, token file",
      {"trainyard context set lab --server gpu1.example:7443 --ca-file ca.pem",
       "trainyard context set lab --project vision"},
      "The options --server, --ca-file, --project, --token-file and --plaintext, which every "
      "command has, say what to set. A context without a server means that of this machine.",
      [name](OptionSet& options) { options.positional("CONTEXT", *name, "the context's name"); },
      [name](Session& session) { return run_context_set(session, *name); }};
}

Command context_remove_command() {
  struct Options {
    std::string name;
    ConfirmOptions confirm;
  };
  auto o = std::make_shared<Options>();
  return {"context remove",
          "Remove a context and its token from this machine",
          {"trainyard context remove lab --yes"},
          "The token stays valid; 'trainyard logout --revoke' revokes it.",
          [o](OptionSet& options) {
            options.positional("CONTEXT", o->name, "the context's name");
            add_confirm_options(options, o->confirm);
          },
          [o](Session& session) { return run_context_remove(session, o->name, o->confirm); }};
}

}  // namespace

std::vector<Command> context_commands() {
  auto shown = std::make_shared<std::string>();
  auto used = std::make_shared<std::string>();
  std::vector<Command> list;
  list.push_back({"context list",
                  "List the contexts of the configuration file",
                  {"trainyard context list"},
                  "",
                  [](OptionSet&) {},
                  run_context_list});
  list.push_back({"context show",
                  "Show server, token and project of commands, and where each comes from",
                  {"trainyard context show", "trainyard context show lab"},
                  "The order is: option, environment, context, default. A context that --context "
                  "names goes before the environment.",
                  [shown](OptionSet& options) {
                    options.positional("CONTEXT", *shown, "a context, default the one in use",
                                       false);
                  },
                  [shown](Session& session) { return run_context_show(session, *shown); }});
  list.push_back(
      {"context use",
       "Make a context the one in use",
       {"trainyard context use lab"},
       "",
       [used](OptionSet& options) { options.positional("CONTEXT", *used, "the context's name"); },
       [used](Session& session) { return run_context_use(session, *used); }});
  list.push_back(context_set_command());
  list.push_back(context_remove_command());
  return list;
}

}  // namespace trainyard::cli
