SELECT id, amount FROM orders WHERE tx >= ':start'::xid8 AND tx < ':end'::xid8 ORDER BY tx, id;
