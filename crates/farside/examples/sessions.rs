//! A session store: who is logged in, with what in the basket. Sessions come, change, and go.
//!
//! `cargo run --release --package farside --example sessions`

use farside::{Database, Error, Typed};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
struct Session {
    user: String,
    basket: Vec<String>,
}

type Sessions = Typed<str, Session>;

fn main() -> Result<(), Error> {
    let db = Database::open("mem:")?.connect()?;
    db.block_on(async {
        let sessions: Sessions = Typed::new(db.create_table("sessions").await?);
        let new = Session { user: "ada".into(), basket: Vec::new() };
        db.transact(async |tx| sessions.insert(tx, "token-1", &new).await).await?;

        // Put something into the basket: read and write are one.
        db.transact(async |tx| {
            let session = sessions.get_for_update(tx, "token-1").await?;
            let mut session = session.ok_or(Error::NoKey)?;
            session.basket.push("a book".into());
            sessions.update(tx, "token-1", &session).await
        })
        .await?;

        let mut moment = db.snapshot().await?;
        let found = sessions.get_at(&mut moment, "token-1").await?;
        println!("{found:?}");
        assert_eq!(found.map(|session| session.basket), Some(vec!["a book".to_owned()]));

        // Logging in twice is refused; logging out twice is noticed.
        let twice = db.transact(async |tx| sessions.insert(tx, "token-1", &new).await).await;
        assert_eq!(twice, Err(Error::KeyExists));
        assert!(db.transact(async |tx| sessions.delete(tx, "token-1").await).await?);
        assert!(!db.transact(async |tx| sessions.delete(tx, "token-1").await).await?);
        Ok(())
    })
}
