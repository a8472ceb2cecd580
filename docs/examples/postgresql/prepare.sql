ALTER TABLE orders ADD COLUMN tx xid8 NOT NULL DEFAULT pg_current_xact_id();
CREATE INDEX orders_tx ON orders (tx);
CREATE FUNCTION orders_tx() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN NEW.tx := pg_current_xact_id(); RETURN NEW; END $$;
CREATE TRIGGER orders_tx BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION orders_tx();
