// Tests of the tables of people, projects, tokens and shares. They fail if a person, project or
// token outlives what it depends on, if the last admin can be lost, or if a change is half stored.
#include <gtest/gtest.h>

#include <algorithm>

#include "server/store/sqlite.h"
#include "tests/server/fake_clock.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

using Names = std::vector<std::string>;

class StorePeople : public ::testing::Test {
 protected:
  void reopen() {
    store_.reset();
    store_ = open_or_die(small_options(directory_.path()), clock_);
  }
  PeopleStore& people() { return store_->people(); }
  PeopleRows rows() { return people().read_all().value(); }
  void make_admin(const std::string& name) {
    ASSERT_TRUE(people().put_person({name, v1::ADMIN}).ok());
  }
  Result<Token> make_token(const std::string& person, const std::string& name,
                           const std::string& digest) {
    NewToken asked;
    asked.person = person;
    asked.name = name;
    asked.digest = digest;
    asked.valid_us = 1'000'000;
    asked.creates_person = true;
    return people().create_token(asked);
  }
  void make_dataset(const std::string& project, const std::string& id) {
    NewDataset asked;
    asked.project = project;
    asked.id = id;
    asked.digest = std::string(64, 'a');
    ASSERT_TRUE(store_->datasets().create(asked).ok());
  }
  template <typename T>
  static std::string reason(const Result<T>& result) {
    return result.ok() ? "OK" : result.error().reason;
  }

  TemporaryDirectory directory_;
  FakeClock clock_;
  std::unique_ptr<Store> store_ = open_or_die(small_options(directory_.path()), clock_);
};

TEST_F(StorePeople, ANewStoreHasTheDefaultProjectAndNobody) {
  const PeopleRows all = rows();
  ASSERT_EQ(all.projects.size(), 1U);
  EXPECT_EQ(all.projects[0].id, "default");
  EXPECT_TRUE(all.people.empty());
  EXPECT_EQ(reason(people().remove_project("default")), "PROJECT_NEEDED");
  store_.reset();
  Connection db(directory_.path() / "trainyard.db", Connection::Mode::kReadWrite, 100);
  EXPECT_THROW(db.execute("DELETE FROM projects"), SqliteError) << "nor by a mistake in the code";
}

TEST_F(StorePeople, ThereIsAlwaysAnAdminOnceThereWasOne) {
  EXPECT_EQ(people().put_person({"ada"})->server_role, v1::USER);
  make_admin("ada");
  EXPECT_EQ(people().put_person({"ada"})->server_role, v1::ADMIN) << "unchanged";
  EXPECT_EQ(reason(people().put_person({"ada", v1::OPERATOR})), "LAST_ADMIN");
  EXPECT_EQ(reason(people().remove_person("ada", "")), "LAST_ADMIN");
  make_admin("bob");
  EXPECT_EQ(people().put_person({"ada", v1::USER})->server_role, v1::USER);
  EXPECT_EQ(reason(people().remove_person("bob", "")), "LAST_ADMIN");
  EXPECT_TRUE(people().remove_person("bob", "", /*may_leave_no_admin=*/true).ok())
      << "for the daemon's own user, who stays an admin";
  EXPECT_EQ(reason(people().remove_person("bob", "")), "PERSON_NOT_FOUND");
}

TEST_F(StorePeople, AServiceStaysAService) {
  EXPECT_TRUE(people().put_person({"ci", v1::USER, true})->service);
  EXPECT_TRUE(people().put_person({"ci", v1::OPERATOR})->service);
  EXPECT_TRUE(people().put_person({"ada"}).ok());
  EXPECT_EQ(reason(people().put_person({"ada", v1::USER, true})), "SERVICE_FIXED");
  people().note_call("ci", true, "");
  EXPECT_EQ(people().list_people(0, "")->entries.at(1).host_user, false);
}

TEST_F(StorePeople, APersonWhoOwnsThingsIsRemovedOnlyIfSomeoneGetsThem) {
  NewJob waiting = new_job("waits");
  waiting.owner = "ada";
  NewJob running = new_job("runs");
  running.owner = "ada";
  ASSERT_TRUE(store_->jobs().submit(waiting).ok());
  run_job(*store_, running);
  ASSERT_TRUE(people().put_person({"ada"}).ok());
  const Status refused = people().remove_person("ada", "");
  EXPECT_EQ(reason(refused), "PERSON_OWNS_RESOURCES");
  EXPECT_NE(refused.error().message.find("owns 2 unfinished jobs"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(reason(people().remove_person("ada", "bob")), "PERSON_NOT_FOUND");
  EXPECT_EQ(store_->jobs().find("default", "runs")->owner, "ada") << "nothing was changed";
  std::vector<std::string> owners;
  store_->observe([&](std::span<const JobChange> changes) {
    for (const JobChange& change : changes) owners.push_back(change.reschedules->owner);
  });
  ASSERT_TRUE(people().put_person({"bob"}).ok());
  ASSERT_TRUE(people().remove_person("ada", "bob").ok());
  EXPECT_EQ(owners, (Names{"bob", "bob"})) << "the scheduler counts them for bob";
  EXPECT_EQ(store_->jobs().find("default", "runs")->owner, "bob");
  EXPECT_EQ(store_->jobs().find("default", "waits")->owner, "bob");
}

TEST_F(StorePeople, TokensRolesAndSharesEndWithTheirPerson) {
  ASSERT_TRUE(people().create_project("vision").ok());
  ASSERT_TRUE(people().set_member({"vision", "ada", v1::MEMBER}).ok());
  make_dataset("default", "digits");
  ASSERT_TRUE(make_token("ada", "laptop", "D1").ok());
  ASSERT_TRUE(people().share({"default", "datasets", "digits", "vision", "ada", 0}).ok());
  ASSERT_TRUE(people().put_person({"ci", v1::USER, true}).ok());
  NewToken acts;
  acts.person = "ci";
  acts.name = "bot";
  acts.digest = "D2";
  acts.may_act_for = {"ada", "bob"};
  ASSERT_TRUE(people().create_token(acts).ok());
  ASSERT_TRUE(people().remove_person("ada", "").ok());
  const PeopleRows all = rows();
  EXPECT_TRUE(all.members.empty());
  EXPECT_TRUE(all.shares.empty());
  ASSERT_EQ(all.tokens.size(), 1U);
  EXPECT_EQ(all.tokens[0].may_act_for, Names{"bob"}) << "a later ada is someone else";
  EXPECT_EQ(all.revoked_digests, Names{"D1"});
}

TEST_F(StorePeople, SharesOfARemovedPersonGoToTheHeir) {
  ASSERT_TRUE(people().create_project("vision").ok());
  make_dataset("default", "digits");
  ASSERT_TRUE(people().share({"default", "datasets", "digits", "vision", "ada", 0}).ok());
  ASSERT_TRUE(people().put_person({"bob"}).ok());
  ASSERT_TRUE(people().remove_person("ada", "bob").ok());
  ASSERT_EQ(rows().shares.size(), 1U);
  EXPECT_EQ(rows().shares[0].person, "bob");
}

TEST_F(StorePeople, AProjectIsDeletedOnlyWhenItIsEmpty) {
  EXPECT_EQ(people().create_project("vision")->members, 0);
  EXPECT_EQ(reason(people().create_project("vision")), "PROJECT_EXISTS");
  make_dataset("vision", "digits");
  const Status full = people().remove_project("vision");
  EXPECT_EQ(reason(full), "PROJECT_NOT_EMPTY");
  EXPECT_NE(full.error().message.find("datasets"), std::string::npos) << full.error().message;
  ASSERT_TRUE(store_->datasets().remove("vision", *parse_dataset_ref("digits@1")).ok());
  ASSERT_TRUE(people().remove_project("vision").ok());
  EXPECT_EQ(reason(people().remove_project("vision")), "PROJECT_NOT_FOUND");
}

TEST_F(StorePeople, NothingIsStoredInAProjectThatDoesNotExist) {
  NewJob job = new_job("lost");
  job.project = "nowhere";
  EXPECT_FALSE(store_->jobs().submit(job).ok());
  EXPECT_FALSE(store_->uploads().begin({"nowhere", std::string(64, 'a'), 1}).ok());
  EXPECT_EQ(rows().projects.size(), 1U);
  EXPECT_TRUE(store_->jobs().submit(new_job("kept")).ok()) << "the store still writes";
}

TEST_F(StorePeople, ARoleIsChangedAndTakenAway) {
  ASSERT_TRUE(people().create_project("vision").ok());
  EXPECT_EQ(reason(people().set_member({"nowhere", "ada", v1::MEMBER})), "PROJECT_NOT_FOUND");
  ASSERT_TRUE(people().set_member({"vision", "ada", v1::MEMBER}).ok());
  ASSERT_TRUE(people().set_member({"vision", "ada", v1::MAINTAINER}).ok());
  ASSERT_EQ(people().list_members("vision", 0, "")->entries.size(), 1U);
  EXPECT_EQ(people().list_members("vision", 0, "")->entries[0].role, v1::MAINTAINER);
  EXPECT_EQ(people().list_people(0, "")->entries.at(0).name, "ada") << "she was created";
  ASSERT_TRUE(people().set_member({"vision", "ada", v1::NONE}).ok());
  EXPECT_TRUE(rows().members.empty());
  ASSERT_TRUE(people().set_member({"default", "ada", v1::NONE}).ok());
  ASSERT_EQ(rows().members.size(), 1U) << "it says that she does not get socket_role";
  EXPECT_TRUE(people().list_members("default", 0, "")->entries.empty());
}

TEST_F(StorePeople, ATokenIsUniqueByItsNameForAPerson) {
  const Result<Token> first = make_token("ada", "laptop", "D1");
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_TRUE(first->id.starts_with("t-"));
  EXPECT_EQ(first->id.size(), 18U);
  EXPECT_EQ(reason(make_token("ada", "laptop", "D2")), "TOKEN_EXISTS");
  EXPECT_TRUE(make_token("bob", "laptop", "D2").ok()) << "two people may use one name";
  NewToken acts;
  acts.person = "ada";
  acts.name = "bot";
  acts.digest = "D3";
  acts.may_act_for = {"*"};
  EXPECT_EQ(reason(people().create_token(acts)), "FIELD_CONFLICT") << "she is no service";
  acts.person = "nobody";
  EXPECT_EQ(reason(people().create_token(acts)), "PERSON_NOT_FOUND");
  for (int64_t i = 1; i < kTokensOfAPersonMax; ++i) {
    ASSERT_TRUE(make_token("ada", "t" + std::to_string(i), "E" + std::to_string(i)).ok());
  }
  EXPECT_EQ(reason(make_token("ada", "more", "E0")), "TOKENS_LIMIT_REACHED");
}

TEST_F(StorePeople, ARotatedTokenKeepsItsIdAndItsOldTextForAWhile) {
  clock_.set_wall(10'000'000);
  const Token made = make_token("ada", "laptop", "D1").value();
  EXPECT_EQ(made.expire_time_us, 11'000'000);
  const Token next = people().rotate_token(made.id, "D2", 500'000, 0).value();
  EXPECT_EQ(next.id, made.id);
  EXPECT_EQ(next.digest, "D2");
  EXPECT_EQ(next.old_digest, "D1");
  EXPECT_EQ(next.old_end_us, 10'500'000);
  EXPECT_EQ(next.expire_time_us, 11'000'000) << "valid as long as at first";
  EXPECT_EQ(next.rotations, 1);
  const Token third = people().rotate_token(made.id, "D3", 9'000'000, 7'000'000).value();
  EXPECT_EQ(third.old_end_us, 11'000'000) << "an old text does not outlive its own expiry";
  EXPECT_EQ(third.expire_time_us, 17'000'000);
  EXPECT_EQ(rows().revoked_digests, Names{"D1"});
  ASSERT_TRUE(people().revoke_token(made.id).ok());
  EXPECT_EQ(reason(people().revoke_token(made.id)), "TOKEN_NOT_FOUND");
  Names revoked = rows().revoked_digests;
  std::ranges::sort(revoked);
  EXPECT_EQ(revoked, (Names{"D1", "D2", "D3"}));
}

TEST_F(StorePeople, AShareEndsWithItsObjectAndItsProjects) {
  ASSERT_TRUE(people().create_project("vision").ok());
  ASSERT_TRUE(people().create_project("audio").ok());
  EXPECT_EQ(reason(people().share({"default", "datasets", "digits", "vision", "ada", 0})),
            "DATASET_NOT_FOUND");
  EXPECT_EQ(reason(people().share({"default", "models", "net", "vision", "ada", 0})),
            "MODEL_NOT_FOUND");
  make_dataset("default", "digits");
  EXPECT_EQ(reason(people().share({"default", "datasets", "digits", "nowhere", "ada", 0})),
            "PROJECT_NOT_FOUND");
  for (const char* id : {"digits", "digits@1"}) {
    for (const char* with : {"vision", "audio"}) {
      ASSERT_TRUE(people().share({"default", "datasets", id, with, "ada", 0}).ok());
      ASSERT_TRUE(people().share({"default", "datasets", id, with, "bob", 0}).ok()) << "idempotent";
    }
  }
  EXPECT_EQ(reason(people().share({"default", "datasets", "digits@2", "vision", "ada", 0})),
            "DATASET_NOT_FOUND");
  ASSERT_EQ(rows().shares.size(), 4U);
  EXPECT_EQ(rows().shares[0].person, "ada");
  ASSERT_TRUE(people().unshare({"default", "datasets", "digits", "vision", "", 0}).ok());
  EXPECT_EQ(reason(people().unshare({"default", "datasets", "digits", "vision", "", 0})),
            "SHARE_NOT_FOUND");
  ASSERT_TRUE(people().remove_project("audio").ok());
  EXPECT_EQ(rows().shares.size(), 1U);
  ASSERT_TRUE(store_->datasets().remove("default", *parse_dataset_ref("digits@1")).ok());
  EXPECT_TRUE(rows().shares.empty()) << "a later dataset of this name is another";
}

TEST_F(StorePeople, ListsHavePages) {
  for (const char* name : {"cy", "ada", "bob"}) {
    ASSERT_TRUE(people().put_person({name}).ok());
    ASSERT_TRUE(make_token(name, "b", std::string(name) + "b").ok());
    ASSERT_TRUE(make_token(name, "a", std::string(name) + "a").ok());
  }
  Names names;
  std::string page_token;
  do {
    const NamedPage<Person> page = people().list_people(2, page_token).value();
    for (const Person& person : page.entries) names.push_back(person.name);
    page_token = page.next_page_token;
  } while (!page_token.empty());
  EXPECT_EQ(names, (Names{"ada", "bob", "cy"}));
  Names tokens;
  do {
    const NamedPage<Token> page = people().list_tokens("", 1, page_token).value();
    for (const Token& token : page.entries) tokens.push_back(token.person + " " + token.name);
    page_token = page.next_page_token;
  } while (!page_token.empty());
  EXPECT_EQ(tokens, (Names{"ada a", "ada b", "bob a", "bob b", "cy a", "cy b"}));
  EXPECT_EQ(people().list_tokens("bob", 0, "")->entries.size(), 2U);
  const std::string of_people = people().list_people(1, "")->next_page_token;
  EXPECT_EQ(reason(people().list_tokens("", 1, of_people)), "PAGE_TOKEN_INVALID");
  std::string forged = of_people;
  forged[0] = 'b';
  EXPECT_EQ(reason(people().list_people(1, forged)), "PAGE_TOKEN_INVALID");
  EXPECT_EQ(reason(people().list_people(1, "ada")), "PAGE_TOKEN_INVALID");
  EXPECT_EQ(people().list_projects({"default", "nowhere"}, 0, "")->entries.size(), 1U);
}

TEST_F(StorePeople, ACallCreatesThePersonAndNotesTheTime) {
  clock_.set_wall(5'000'000);
  const Token token = make_token("ada", "laptop", "D1").value();
  people().note_call("bob", true, "");
  people().note_call("ada", false, token.id);
  reopen();  // the times share a later commit, which the end of the store brings
  const PeopleRows all = rows();
  ASSERT_EQ(all.people.size(), 2U);
  EXPECT_EQ(all.people[0].last_call_us, 5'000'000);
  EXPECT_FALSE(all.people[0].host_user);
  EXPECT_TRUE(all.people[1].host_user);
  EXPECT_EQ(all.tokens.at(0).last_use_us, 5'000'000);
}

}  // namespace
}  // namespace trainyard::server
