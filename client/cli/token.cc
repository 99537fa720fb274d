// trainyard token create, list, rotate, revoke.
#include <limits>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/confirm.h"
#include "client/cli/list_limit.h"
#include "client/cli/people_view.h"
#include "src/base/join.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

constexpr int64_t kTokensOnScreen = 100;
constexpr const char* kNeverExpires = "never";

constexpr client::Rpc<v1::CreateTokenRequest, v1::CreateTokenResponse> kCreateToken{
    "PeopleService/CreateToken", client::Repeat::kNever};
constexpr client::Rpc<v1::RotateTokenRequest, v1::CreateTokenResponse> kRotateToken{
    "PeopleService/RotateToken", client::Repeat::kNever};

std::string expiry_text(const v1::Token& token) {
  return token.has_expire_time() ? local_time(token.expire_time()) : kNeverExpires;
}

/// Prints a token's text, which only this response has, and says so on stderr.
void show_text(Session& session, const v1::CreateTokenResponse& created) {
  session.show(created, [&] { return created.text() + "\n"; }, {created.text()});
  const v1::Token& token = created.token();
  session.err().line(
      "note: this is the only time that the token " + safe_text(token.name()) + " (" +
      safe_text(token.id()) + ") of " + safe_text(token.person()) + " is shown; it is valid " +
      (token.has_expire_time() ? "until " + expiry_text(token) : "until it is revoked") +
      ". 'trainyard login' asks for it where it is used");
}

struct TokenCreateOptions {
  std::string name;
  std::string person;
  std::string valid;
  std::vector<std::string> may_act_for;
};

Result<int> run_token_create(Session& session, const TokenCreateOptions& options) {
  v1::CreateTokenRequest request;
  request.set_name(options.name);
  request.set_person(options.person);
  if (options.valid == kNeverExpires) {
    request.set_never_expires(true);
  } else if (!options.valid.empty()) {
    ASSIGN_OR_RETURN(const int64_t seconds, parse_option_seconds("--valid", options.valid));
    request.set_valid_seconds(seconds);
  }
  for (const std::string& person : options.may_act_for) request.add_may_act_for(person);
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::CreateTokenResponse created, server->call(kCreateToken, request));
  show_text(session, created);
  return static_cast<int>(client::kExitOk);
}

struct TokenListOptions {
  std::string person;
  bool all = false;
  ListLimit limit;
};

Result<int> run_token_list(Session& session, const TokenListOptions& options) {
  if (options.all && !options.person.empty()) {
    return usage_error("--all, --person: expected one of them");
  }
  ASSIGN_OR_RETURN(const int64_t limit, options.limit.count(session));
  v1::ListTokensRequest request;
  request.set_person(options.person);
  request.set_all(options.all);
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::ListTokensResponse tokens,
                   read_pages(*server, client::rpc::kListTokens, request,
                              &v1::ListTokensResponse::mutable_tokens, limit));
  std::vector<std::string> ids;
  Table table({{.title = "NAME", .is_name = true},
               {"ID"},
               {"PERSON"},
               {"EXPIRES"},
               {"LAST USE"},
               {.title = "MAY ACT FOR", .shortens = true}});
  for (const v1::Token& token : tokens.tokens()) {
    ids.push_back(token.id());
    table.add(
        {token.name(), token.id(), token.person(), expiry_text(token),
         token.has_last_use_time() ? local_time(token.last_use_time()) : "none",
         joined(std::vector<std::string>(token.may_act_for().begin(), token.may_act_for().end()),
                ", ")});
  }
  const bool empty = ids.empty();
  session.show(
      tokens, [&] { return empty ? std::string() : table.render(session.out()); }, ids);
  if (empty) session.hint("No tokens yet. 'trainyard token create NAME' creates one.");
  if (!tokens.next_page_token().empty()) {
    session.hint("There are more; raise --limit to see them.");
  }
  return static_cast<int>(client::kExitOk);
}

/// Returns whether the text has the form of a token's ID, t-0123456789abcdef.
bool is_token_id(const std::string& text) {
  constexpr size_t kIdChars = 18;
  return text.size() == kIdChars && text.starts_with("t-") &&
         text.find_first_not_of("0123456789abcdef", 2) == text.npos;
}

/// Returns the ID of a token that is given by ID, or by the name that its person gave it.
Result<std::string> token_id(client::Client& server, const std::string& given,
                             const std::string& person) {
  if (is_token_id(given)) return given;
  if (given.starts_with("ty_")) {
    return usage_error(
        "expected the token's name or ID, not its text, which is now in your "
        "shell's history; 'trainyard token list' shows them");
  }
  v1::ListTokensRequest request;
  request.set_person(person);
  ASSIGN_OR_RETURN(
      const v1::ListTokensResponse tokens,
      read_pages(server, client::rpc::kListTokens, request, &v1::ListTokensResponse::mutable_tokens,
                 std::numeric_limits<int64_t>::max()));
  for (const v1::Token& token : tokens.tokens()) {
    if (token.name() == given) return token.id();
  }
  return make_error(ErrorCode::kNotFound, "TOKEN_NOT_FOUND",
                    "there is no token " + quoted_value(given) + " of " +
                        (person.empty() ? "yours" : safe_text(person)));
}

struct TokenRotateOptions {
  std::string token;
  std::string person;
  std::string overlap;
  std::string valid;
};

Result<int> run_token_rotate(Session& session, const TokenRotateOptions& options) {
  v1::RotateTokenRequest request;
  if (!options.overlap.empty()) {
    ASSIGN_OR_RETURN(const int64_t seconds, parse_option_seconds("--overlap", options.overlap));
    request.set_overlap_seconds(seconds);
  }
  if (!options.valid.empty()) {
    ASSIGN_OR_RETURN(const int64_t seconds, parse_option_seconds("--valid", options.valid));
    request.set_valid_seconds(seconds);
  }
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(*request.mutable_id(), token_id(*server, options.token, options.person));
  ASSIGN_OR_RETURN(const v1::CreateTokenResponse created, server->call(kRotateToken, request));
  show_text(session, created);
  return static_cast<int>(client::kExitOk);
}

struct TokenRevokeOptions {
  std::vector<std::string> tokens;
  std::string person;
  ConfirmOptions confirm;
};

Result<int> run_token_revoke(Session& session, const TokenRevokeOptions& options) {
  const Deed deed = {"revoke", "revoking", "revoked"};
  if (Status sure = confirm_delete(session, options.confirm, "token", options.tokens, "", deed);
      !sure.ok()) {
    return std::move(sure).error();
  }
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  for (const std::string& given : options.tokens) {
    v1::RevokeTokenRequest request;
    ASSIGN_OR_RETURN(*request.mutable_id(), token_id(*server, given, options.person));
    if (Status revoked = server->call(client::rpc::kRevokeToken, request); !revoked.ok()) {
      return std::move(revoked).error();
    }
    session.err().line("revoked token " + safe_text(given));
  }
  return static_cast<int>(client::kExitOk);
}

Command token_create_command() {
  auto o = std::make_shared<TokenCreateOptions>();
  return {
      "token create",
      "Create a token and print it, once",
      {"trainyard token create laptop", "trainyard token create laptop --valid 30d > token",
       "trainyard token create nightly --person ci --act-for alice --act-for bob"},
      "The token has your rights. The server keeps only its digest, so nobody can show it again. "
      "Admins create tokens for others and for services; a service's token may act for people, "
      "and the audit names both.",
      [o](OptionSet& options) {
        options.positional("NAME", o->name, "what it is for, such as laptop");
        options.text("--person", "PERSON", o->person, "whose token, default yours; for admins");
        options.text("--valid", "TIME", o->valid,
                     "how long: 12h, 30d, default 90d; never, for admins");
        options.texts("--act-for", "PERSON", o->may_act_for,
                      "for whom a service's token may act; *: for all but admins and "
                      "operators; may be given several times");
      },
      [o](Session& session) { return run_token_create(session, *o); }};
}

Command token_list_command() {
  auto o = std::make_shared<TokenListOptions>();
  return {"token list",
          "List tokens, without their texts: yours, or for admins those of others",
          {"trainyard token list", "trainyard token list --all"},
          "",
          [o](OptionSet& options) {
            options.text("--person", "PERSON", o->person, "those of this person; for admins");
            options.flag("--all", o->all, "those of all people; for admins");
            o->limit.add_option(options, "tokens", kTokensOnScreen);
          },
          [o](Session& session) { return run_token_list(session, *o); }};
}

Command token_rotate_command() {
  auto o = std::make_shared<TokenRotateOptions>();
  return {"token rotate",
          "Replace a token's text and print the new one, once",
          {"trainyard token rotate laptop", "trainyard token rotate laptop --overlap 1h"},
          "Name, ID and rights stay.",
          [o](OptionSet& options) {
            options.positional("TOKEN", o->token, "the token's name or ID");
            options.text("--overlap", "TIME", o->overlap,
                         "how long the old text stays valid: at most 7d, default not at all");
            options.text("--valid", "TIME", o->valid,
                         "how long the new text is valid, default as long as the first one was");
            options.text("--person", "PERSON", o->person, "whose token, if not yours; for admins");
          },
          [o](Session& session) { return run_token_rotate(session, *o); }};
}

Command token_revoke_command() {
  auto o = std::make_shared<TokenRevokeOptions>();
  return {"token revoke",
          "Revoke tokens at once; calls and streams that came with them end",
          {"trainyard token revoke laptop --yes"},
          "",
          [o](OptionSet& options) {
            options.positionals("TOKEN", o->tokens, "the tokens' names or IDs");
            options.text("--person", "PERSON", o->person, "whose tokens, if not yours; for admins");
            add_confirm_options(options, o->confirm);
          },
          [o](Session& session) { return run_token_revoke(session, *o); }};
}

}  // namespace

std::vector<Command> token_commands() {
  std::vector<Command> list;
  list.push_back(token_create_command());
  list.push_back(token_list_command());
  list.push_back(token_rotate_command());
  list.push_back(token_revoke_command());
  return list;
}

}  // namespace trainyard::cli
