// Tests of people, roles and tokens in memory. They fail if a revoked, expired or replaced token
// still opens anything, if a role outlives its change, or if noting calls costs a commit each.
#include "server/people/people.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "server/people/random_token.h"
#include "src/base/sha256.h"
#include "src/base/token_text.h"
#include "tests/server/fake_clock.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

constexpr int64_t kSecond = 1'000'000;

class PeopleTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(people_.reload().ok()); }
  PeopleStore& stored() { return store_->people(); }
  /// Creates a token and returns its text.
  std::string make_token(const std::string& person, std::vector<std::string> may_act_for = {},
                         int64_t valid_us = 100 * kSecond) {
    const std::string text = random_token_text();
    NewToken asked;
    asked.person = person;
    asked.name = "n" + std::to_string(++tokens_made_);
    asked.digest = sha256_hex(text);
    asked.valid_us = valid_us;
    asked.may_act_for = std::move(may_act_for);
    asked.creates_person = true;
    token_ = stored().create_token(asked).value();
    reload();
    return text;
  }
  void set(const std::string& name, v1::ServerRole role, bool service = false) {
    ASSERT_TRUE(stored().put_person({name, role, service, true}).ok());
    reload();
  }
  void set_member(const std::string& project, const std::string& person, v1::ProjectRole role) {
    ASSERT_TRUE(stored().set_member({project, person, role}).ok());
    reload();
  }
  void reload() { ASSERT_TRUE(people_.reload().ok()); }
  std::string reason(const std::string& text, const std::string& acting_for = "") {
    const Result<Principal> found = people_.find_by_token(text, acting_for);
    return found.ok() ? found->text() : found.error().reason;
  }
  static Principal person(const std::string& name) {
    Principal out;
    out.person = name;
    return out;
  }
  static Principal on_socket(const std::string& name) {
    Principal out = person(name);
    out.local = true;
    return out;
  }
  Tokens tokens(const std::string& text) {
    const std::filesystem::path path = directory_.path() / "tokens";
    std::filesystem::remove(path);
    std::ofstream(path) << text;
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
    return Tokens::load(path).value();
  }

  TemporaryDirectory directory_;
  FakeClock clock_;
  std::unique_ptr<Store> store_ = open_or_die(small_options(directory_.path()), clock_);
  People people_{*store_, clock_, ProjectRole::kMember};
  Token token_;  // the newest
  int tokens_made_ = 0;
};

TEST_F(PeopleTest, ATokensTextIsRandomAndHasAChecksum) {
  std::set<std::string> texts;
  std::set<char> characters;
  for (int i = 0; i < 200; ++i) {
    const std::string text = random_token_text();
    EXPECT_TRUE(is_token_text(text)) << text;
    texts.insert(text);
    characters.insert(text.begin() + 3, text.end());
  }
  EXPECT_EQ(texts.size(), 200U);
  EXPECT_EQ(characters.size(), 62U) << "8,400 characters have every letter and digit";
}

TEST_F(PeopleTest, ATokenNamesItsPerson) {
  const std::string text = make_token("ada");
  EXPECT_EQ(reason(text), "ada (token " + token_.id + ")");
  std::string mistyped = text;
  mistyped[20] = mistyped[20] == 'x' ? 'y' : 'x';
  const Result<Principal> wrong = people_.find_by_token(mistyped, "");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().reason, "CREDENTIALS_INVALID");
  EXPECT_NE(wrong.error().message.find("mistyped or cut"), std::string::npos);
  const Result<Principal> foreign = people_.find_by_token(random_token_text(), "");
  ASSERT_FALSE(foreign.ok());
  EXPECT_EQ(foreign.error().message, "the token is not valid on this server");
  EXPECT_EQ(reason(""), "CREDENTIALS_INVALID");
}

TEST_F(PeopleTest, ARevokedTokenEndsAtOnce) {
  const std::string text = make_token("ada");
  const Principal caller = people_.find_by_token(text, "").value();
  EXPECT_TRUE(people_.is_valid(caller));
  int changes = 0;
  people_.observe([&] { ++changes; });
  ASSERT_TRUE(stored().revoke_token(token_.id).ok());
  reload();
  EXPECT_EQ(changes, 1) << "streams check their callers";
  EXPECT_EQ(reason(text), "CREDENTIALS_REVOKED");
  EXPECT_FALSE(people_.is_valid(caller));
}

TEST_F(PeopleTest, AnExpiredTokenEndsByTheClock) {
  const std::string text = make_token("ada", {}, 60 * kSecond);
  const Principal caller = people_.find_by_token(text, "").value();
  clock_.pass(60 * kSecond - 1);
  EXPECT_TRUE(people_.is_valid(caller));
  clock_.pass(1);
  EXPECT_FALSE(people_.is_valid(caller));
  EXPECT_EQ(reason(text), "CREDENTIALS_EXPIRED");
  const std::string forever = make_token("ada", {}, 0);
  clock_.pass(int64_t{400} * 24 * 3600 * kSecond);
  EXPECT_EQ(reason(forever), "ada (token " + token_.id + ")");
}

TEST_F(PeopleTest, TheOldTextOfARotatedTokenIsValidDuringTheOverlapOnly) {
  const std::string old_text = make_token("ada");
  const Principal old_caller = people_.find_by_token(old_text, "").value();
  const std::string new_text = random_token_text();
  ASSERT_TRUE(stored().rotate_token(token_.id, sha256_hex(new_text), 10 * kSecond, 0).ok());
  reload();
  const Principal new_caller = people_.find_by_token(new_text, "").value();
  EXPECT_TRUE(people_.find_by_token(old_text, "").ok());
  EXPECT_TRUE(people_.is_valid(old_caller));
  clock_.pass(10 * kSecond);
  EXPECT_EQ(reason(old_text), "CREDENTIALS_REVOKED");
  EXPECT_FALSE(people_.is_valid(old_caller)) << "its streams end too";
  EXPECT_TRUE(people_.is_valid(new_caller));
  const std::string third = random_token_text();
  ASSERT_TRUE(stored().rotate_token(token_.id, sha256_hex(third), 0, 0).ok());
  reload();
  EXPECT_EQ(reason(new_text), "CREDENTIALS_REVOKED");
  EXPECT_EQ(reason(old_text), "CREDENTIALS_REVOKED");
  EXPECT_FALSE(people_.is_valid(new_caller));
  EXPECT_TRUE(people_.find_by_token(third, "").ok());
}

TEST_F(PeopleTest, OnlyAServicesTokenActsForThePeopleThatItNames) {
  set("ci", v1::USER, true);
  set("ada", v1::USER);
  set("root-of-all", v1::ADMIN);
  const std::string named = make_token("ci", {"ada"});
  EXPECT_EQ(reason(named), "ci (token " + token_.id + ")") << "for itself";
  EXPECT_EQ(reason(named, "ada"), "ada by ci (token " + token_.id + ")");
  EXPECT_EQ(reason(named, "bob"), "ACTING_FOR_DENIED");
  EXPECT_EQ(reason(named, "ci"), "ACTING_FOR_DENIED");
  const std::string all = make_token("ci", {"*"});
  EXPECT_EQ(reason(all, "ada"), "ada by ci (token " + token_.id + ")");
  EXPECT_EQ(reason(all, "bob"), "ACTING_FOR_DENIED") << "nobody has that name";
  EXPECT_EQ(reason(all, "root-of-all"), "ACTING_FOR_DENIED") << "* leaves admins out";
  const std::string of_root = make_token("ci", {"root-of-all"});
  EXPECT_EQ(reason(of_root, "root-of-all"), "root-of-all by ci (token " + token_.id + ")");
  EXPECT_EQ(reason(make_token("ada"), "ada"), "ACTING_FOR_DENIED") << "a person's token";
  EXPECT_EQ(people_.find_by_user("bob", false, "ada").error().reason, "ACTING_FOR_DENIED");
  const Principal caller = people_.find_by_token(all, "ada").value();
  EXPECT_TRUE(people_.is_valid(caller));
  set("ada", v1::OPERATOR);
  EXPECT_FALSE(people_.is_valid(caller)) << "* leaves operators out";
}

TEST_F(PeopleTest, RolesComeFromTheStoreAndAreZeroElsewhere) {
  ASSERT_TRUE(stored().create_project("vision").ok());
  set_member("vision", "ada", v1::VIEWER);
  EXPECT_EQ(people_.role(person("ada"), "vision"), ProjectRole::kViewer);
  EXPECT_EQ(people_.role(person("bob"), "vision"), ProjectRole::kNone);
  EXPECT_EQ(people_.role(person("ada"), "nowhere"), ProjectRole::kNone);
  set("root-of-all", v1::ADMIN);
  EXPECT_EQ(people_.role(person("root-of-all"), "vision"), ProjectRole::kMaintainer);
  EXPECT_EQ(people_.role(person("root-of-all"), "nowhere"), ProjectRole::kNone);
  EXPECT_EQ(people_.projects(person("root-of-all")),
            (std::vector<std::string>{"default", "vision"}));
  EXPECT_EQ(people_.projects(person("ada")), std::vector<std::string>{"vision"});
  set_member("vision", "ada", v1::NONE);
  EXPECT_EQ(people_.role(person("ada"), "vision"), ProjectRole::kNone);
  Principal owner = on_socket("anyone");
  owner.owns_daemon = true;
  EXPECT_EQ(people_.server_role(owner), ServerRole::kAdmin);
  EXPECT_EQ(people_.server_role(on_socket("anyone")), ServerRole::kUser);
}

TEST_F(PeopleTest, UsersOfTheHostHaveTheSocketRoleInDefault) {
  EXPECT_EQ(people_.role(on_socket("ada"), "default"), ProjectRole::kMember);
  EXPECT_EQ(people_.role(person("ada"), "default"), ProjectRole::kNone) << "not by a token alone";
  people_.note_call(on_socket("ada"));
  EXPECT_EQ(people_.role(person("ada"), "default"), ProjectRole::kMember)
      << "she is the same person by a token";
  set_member("default", "ada", v1::MAINTAINER);
  EXPECT_EQ(people_.role(on_socket("ada"), "default"), ProjectRole::kMaintainer);
  set_member("default", "ada", v1::NONE);
  EXPECT_EQ(people_.role(on_socket("ada"), "default"), ProjectRole::kNone) << "taken away";
  EXPECT_TRUE(people_.projects(on_socket("ada")).empty());
  set("ci", v1::USER, true);
  EXPECT_EQ(people_.role(person("ci"), "default"), ProjectRole::kNone);
  EXPECT_EQ(people_.find_by_user("ci", false, "").error().reason, "CREDENTIALS_INVALID");
}

TEST_F(PeopleTest, ALineOfTheTokenFileIsAPersonOrAnAdmin) {
  people_.set_file_tokens(tokens("ada 0123456789abcdef-ada\n0123456789abcdef-any\n"));
  EXPECT_EQ(reason("0123456789abcdef-ada"), "ada (token token_file:1)");
  EXPECT_EQ(reason("0123456789abcdef-any"), "token (token token_file:2)");
  EXPECT_EQ(reason("0123456789abcdef-eve"), "CREDENTIALS_INVALID");
  EXPECT_EQ(reason("0123456789abcdef-any", "ada"), "ACTING_FOR_DENIED");
  const Principal ada = people_.find_by_token("0123456789abcdef-ada", "").value();
  const Principal any = people_.find_by_token("0123456789abcdef-any", "").value();
  EXPECT_EQ(people_.server_role(ada), ServerRole::kUser);
  EXPECT_EQ(people_.role(ada, "default"), ProjectRole::kMember) << "as a user of the host";
  EXPECT_EQ(people_.server_role(any), ServerRole::kAdmin);
  people_.set_file_tokens(tokens("# first\nbob 0123456789abcdef-bob\nada 0123456789abcdef-ada\n"));
  EXPECT_TRUE(people_.is_valid(ada)) << "the line has moved, the token is the same";
  EXPECT_FALSE(people_.is_valid(any)) << "its line is gone";
  EXPECT_EQ(reason("0123456789abcdef-any"), "CREDENTIALS_INVALID");
  EXPECT_EQ(reason("0123456789abcdef-bob"), "bob (token token_file:3)");
}

TEST_F(PeopleTest, ASharedDatasetIsSeenByTheOtherProject) {
  ASSERT_TRUE(stored().create_project("vision").ok());
  for (const char* id : {"digits", "digits-2", "letters"}) {
    NewDataset asked;
    asked.project = "default";
    asked.id = id;
    asked.digest = sha256_hex(id);
    ASSERT_TRUE(store_->datasets().create(asked).ok());
  }
  ASSERT_TRUE(stored().share({"default", "datasets", "digits", "vision", "ada", 0}).ok());
  ASSERT_TRUE(stored().share({"default", "datasets", "letters@1", "vision", "ada", 0}).ok());
  set_member("vision", "bob", v1::VIEWER);
  const auto seen = [&](const std::string& id) {
    const bool by_bob = people_.is_shared_with(person("bob"), "default", "datasets", id);
    EXPECT_EQ(people_.is_shared("default", "datasets", id, "vision"), by_bob);
    EXPECT_FALSE(people_.is_shared_with(person("eve"), "default", "datasets", id));
    return by_bob;
  };
  EXPECT_TRUE(seen("digits"));
  EXPECT_TRUE(seen("digits@7"));
  EXPECT_FALSE(seen("digits-2"));
  EXPECT_TRUE(seen("letters@1"));
  EXPECT_FALSE(seen("letters@2"));
  EXPECT_FALSE(seen("letters")) << "the share is of one version";
  EXPECT_FALSE(people_.is_shared("default", "models", "digits", "vision"));
  EXPECT_TRUE(people_.has_shares("default", "datasets", "digits"));
  EXPECT_TRUE(people_.has_shares("default", "datasets", "letters"));
  EXPECT_FALSE(people_.has_shares("default", "datasets", "digits-2"));
  EXPECT_EQ(people_.shares_of("vision").size(), 2U);
}

TEST_F(PeopleTest, ProjectsMayBeLimitedToDevices) {
  ASSERT_TRUE(stored().create_project("vision").ok());
  ASSERT_TRUE(stored().set_devices("vision", {"devices/gpu-0", "devices/gpu-1"}).ok());
  EXPECT_EQ(stored().set_devices("nowhere", {}).error().reason, "PROJECT_NOT_FOUND");
  reload();
  EXPECT_EQ(people_.devices("vision"),
            (std::vector<std::string>{"devices/gpu-0", "devices/gpu-1"}));
  EXPECT_TRUE(people_.devices("default").empty());
  EXPECT_EQ(people_.project_devices().size(), 1U);
}

TEST_F(PeopleTest, CallsAreNotedOnceAMinute) {
  const auto last_call = [&] {
    // A later change brings the waiting ones to the disk.
    EXPECT_TRUE(stored().put_person({"zoe"}).ok());
    return stored().list_people(0, "")->entries.at(0).last_call_us;
  };
  const int64_t first_us = clock_.wall_us();
  people_.note_call(on_socket("ada"));
  EXPECT_EQ(last_call(), first_us);
  EXPECT_TRUE(people_.knows("ada"));
  clock_.pass(59 * kSecond);
  people_.note_call(on_socket("ada"));
  EXPECT_EQ(last_call(), first_us);
  clock_.pass(1 * kSecond);
  people_.note_call(on_socket("ada"));
  EXPECT_EQ(last_call(), clock_.wall_us());
}

}  // namespace
}  // namespace trainyard::server
