// trainyard login, logout: keep a token for a server, or remove it.
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/people_view.h"
#include "client/cli/secret_input.h"
#include "client/lib/contexts.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/base/token_text.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using client::Context;
using client::Contexts;

// The lengths of tokens that a server's token_file may have.
constexpr size_t kPlainTokenCharsMin = 16;
constexpr size_t kPlainTokenCharsMax = 512;

/// Returns an environment without Trainyard's variables, for a login that nothing but the command
/// line and the context determine.
client::Environment without_variables(const client::Environment& env) {
  return [env](const char* name) {
    return std::string_view(name).starts_with("TRAINYARD_") ? std::string() : env(name);
  };
}

/// Checks the form of a token, so that a mistyped one is not sent.
Status check_form(const std::string& token) {
  if (token.starts_with(kTokenPrefix)) {
    if (is_token_text(token)) return {};
    return make_error(
        ErrorCode::kInvalidArgument, "TOKEN_MALFORMED",
        "the token is mistyped or incomplete: expected ty_ and 48 letters and digits, "
        "of which the last 6 are a checksum; it was not sent");
  }
  const bool may_be_of_a_file = client::check_token(token, "the input").ok() &&
                                token.size() >= kPlainTokenCharsMin &&
                                token.size() <= kPlainTokenCharsMax;
  if (may_be_of_a_file) return {};
  return make_error(ErrorCode::kInvalidArgument, "TOKEN_MALFORMED",
                    "this is no token: expected ty_ and 48 letters and digits, or a token of the "
                    "server's token_file; it was not sent");
}

Result<std::string> read_token_line() {
  std::string line;
  std::getline(std::cin, line);
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  return line;
}

Result<std::string> read_secret_token(Session& session, bool from_stdin,
                                      const std::string& server) {
  if (const std::string& file = session.connection().token_file; !file.empty()) {
    if (from_stdin) return usage_error("--token-stdin, --token-file: expected one of them");
    return client::read_token(file);
  }
  if (from_stdin) return read_token_line();
  if (::isatty(STDIN_FILENO) == 0) {
    return usage_error(
        "there is no terminal to ask for the token: --token-stdin reads it from standard input, "
        "--token-file from a file");
  }
  ASSIGN_OR_RETURN(std::string typed,
                   ask_secret(session, "Token for " + server + " (it is not shown): "));
  while (!typed.empty() && typed.back() == ' ') typed.pop_back();
  return typed;
}

/// Returns a name for the context of a server: its host's, or "local" for a Unix socket.
std::string name_for(const client::Connection& connection) {
  if (connection.is_unix()) return "local";
  std::string host = connection.server.substr(0, connection.server.rfind(':'));
  return client::check_context_name(host).ok() ? host : "server";
}

/// Returns the context as the command line describes it, on the basis of the existing one if there
/// is one. Its name is empty if the server gives the name.
Result<Context> described_context(const Session& session, const Contexts& contexts) {
  const client::ConnectionFlags& flags = session.connection();
  std::string name = flags.context;
  std::string server = flags.server;
  if (name.empty() && server.empty()) server = session.env()("TRAINYARD_SERVER");
  if (name.empty() && server.empty()) name = session.env()("TRAINYARD_CONTEXT");
  if (name.empty() && server.empty()) name = contexts.current;
  if (!name.empty()) {
    if (Status checked = client::check_context_name(name); !checked.ok()) {
      return std::move(checked).error();
    }
  }
  const Context* existing = contexts.find(name);
  Context context = existing != nullptr ? *existing : Context{.name = name};
  if (!server.empty() && server != context.server) {
    context = Context{.name = name, .server = server};  // the rest belongs to another server
  }
  std::error_code ignored;
  if (!flags.ca_file.empty()) context.ca_file = fs::absolute(flags.ca_file, ignored);
  if (flags.plaintext) context.plaintext = true;
  if (!flags.project.empty()) {
    ASSIGN_OR_RETURN(const std::string project, project_name(flags.project));
    context.project = project.substr(project.find('/') + 1);
  }
  return context;
}

/// Warns about variables because of which later commands will not use the new context.
void warn_of_variables(Session& session, const Context& context) {
  for (const char* name : {"TRAINYARD_SERVER", "TRAINYARD_TOKEN", "TRAINYARD_TOKEN_FILE"}) {
    const std::string value = session.env()(name);
    if (value.empty() || value == context.server) continue;
    session.err().line("note: " + std::string(name) + " is set and goes before the context");
  }
}

Result<int> run_login(Session& session, bool token_stdin) {
  const client::ConnectionFlags& flags = session.connection();
  ASSIGN_OR_RETURN(Contexts contexts, client::read_contexts(flags, session.env()));
  ASSIGN_OR_RETURN(const fs::path config, client::own_config_file(flags, session.env()));
  ASSIGN_OR_RETURN(Context context, described_context(session, contexts));
  context.token_file.clear();
  ASSIGN_OR_RETURN(client::Connection connection,
                   client::resolve_in_context(&context, {.timeout_s = flags.timeout_s},
                                              without_variables(session.env())));
  context.server = connection.server;
  if (context.name.empty()) context.name = name_for(connection);
  if (Status there = client::probe_server(connection); !there.ok()) {
    return std::move(there).error();
  }
  ASSIGN_OR_RETURN(connection.token, read_secret_token(session, token_stdin, connection.server));
  if (Status formed = check_form(connection.token); !formed.ok()) return std::move(formed).error();
  ASSIGN_OR_RETURN(const auto server, client::Client::connect(connection));
  ASSIGN_OR_RETURN(const v1::WhoAmIResponse me,
                   server->call(client::rpc::kWhoAmI, v1::WhoAmIRequest()));

  context.token_file = client::token_file_of(config, context.name);
  if (Status written = client::write_token(context.token_file, connection.token); !written.ok()) {
    return std::move(written).error();
  }
  contexts.get(context.name) = context;
  contexts.current = context.name;
  bool kept_old = false;
  if (Status written = client::write_contexts(contexts, config, &kept_old); !written.ok()) {
    return std::move(written).error();
  }
  session.show(me,
               [&] {
                 return "logged in to " + context.server + " as " + safe_text(me.person()) +
                        "; the context is " + context.name + "\n";
               },
               {me.person()});
  if (kept_old) {
    session.err().line("note: the comments of the configuration are in " + config.string() +
                       ".old");
  }
  warn_of_variables(session, context);
  session.hint("'trainyard whoami' shows your projects and roles.");
  return static_cast<int>(client::kExitOk);
}

/// Revokes the token with which `server` is called.
Status revoke_own(client::Client& server) {
  ASSIGN_OR_RETURN(const v1::WhoAmIResponse me,
                   server.call(client::rpc::kWhoAmI, v1::WhoAmIRequest()));
  ASSIGN_OR_RETURN(const v1::ListTokensResponse tokens,
                   read_pages(server, client::rpc::kListTokens, v1::ListTokensRequest(),
                              &v1::ListTokensResponse::mutable_tokens, kEntriesPerPage));
  for (const v1::Token& token : tokens.tokens()) {
    if (token.name() != me.token()) continue;
    v1::RevokeTokenRequest request;
    request.set_id(token.id());
    return server.call(client::rpc::kRevokeToken, request);
  }
  return make_error(ErrorCode::kFailedPrecondition, "TOKEN_NOT_REVOCABLE",
                    "the server keeps no token of this text: it is a line of its token_file, which "
                    "its operator removes; without --revoke, logout removes it here");
}

Result<int> run_logout(Session& session, bool revoke) {
  const client::ConnectionFlags& flags = session.connection();
  ASSIGN_OR_RETURN(Contexts contexts, client::read_contexts(flags, session.env()));
  ASSIGN_OR_RETURN(const fs::path config, client::own_config_file(flags, session.env()));
  ASSIGN_OR_RETURN(const Context* chosen, client::choose_context(contexts, flags, session.env()));
  if (chosen == nullptr) {
    return usage_error("there is no context to log out of; 'trainyard context list' shows them");
  }
  Context& context = *contexts.find(chosen->name);
  if (context.token_file.empty()) {
    session.err().line("context " + context.name + " has no token");
    return static_cast<int>(client::kExitOk);
  }
  if (revoke) {
    ASSIGN_OR_RETURN(const client::Connection connection,
                     client::resolve_in_context(&context, {.timeout_s = flags.timeout_s},
                                                without_variables(session.env())));
    ASSIGN_OR_RETURN(const auto server, client::Client::connect(connection));
    if (Status revoked = revoke_own(*server); !revoked.ok()) return std::move(revoked).error();
  }
  const std::string file = context.token_file;
  const bool is_ours = file == client::token_file_of(config, context.name);
  if (is_ours) {
    if (Status removed = user_files().remove_all(file); !removed.ok()) {
      return std::move(removed).error();
    }
  }
  context.token_file.clear();
  bool kept_old = false;
  if (Status written = client::write_contexts(contexts, config, &kept_old); !written.ok()) {
    return std::move(written).error();
  }
  session.err().line("logged out of context " + context.name +
                     (revoke ? "; its token is revoked" : "; its token stays valid elsewhere"));
  if (!is_ours) session.err().line("note: " + file + ", which login did not write, is kept");
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command login_command() {
  auto token_stdin = std::make_shared<bool>(false);
  return {
      "login",
      "Ask for a token, check it with the server and keep it in a context",
      {"trainyard login --server gpu1.example:7443",
       "trainyard login --server gpu1.example:7443 --ca-file ca.pem --context lab --project vision",
       "trainyard login --token-stdin < token"},
      "The token is kept in a file that only you can read, and the context becomes the one in use. "
      "Without --server, login replaces the token of the context in use. The context is named by "
      "--context, else after the server's host.",
      [token_stdin](OptionSet& options) {
        options.flag("--token-stdin", *token_stdin,
                     "read the token from standard input instead of asking");
      },
      [token_stdin](Session& session) { return run_login(session, *token_stdin); }};
}

Command logout_command() {
  auto revoke = std::make_shared<bool>(false);
  return {"logout",
          "Remove the token of a context from this machine",
          {"trainyard logout", "trainyard logout --revoke", "trainyard logout --context lab"},
          "The context itself stays; 'trainyard context remove' removes it.",
          [revoke](OptionSet& options) {
            options.flag("--revoke", *revoke, "also revoke the token on the server");
          },
          [revoke](Session& session) { return run_logout(session, *revoke); }};
}

}  // namespace trainyard::cli
